"""Beginnings and ends of transactions in their usual form, parsed into their types.

A stream of small transactions has almost as many of them as changes.
"""

from typing import Any, Final, Literal

import msgspec

from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Sent, has_utf8_parts, is_utf8
from cdc_platform.sources.debezium.wire.plain_lines import Long, Moments, PlainLine

_STATUS: Final = b"status"
"""Name of the field that says whether a transaction begins or ends."""
_WORDS: Final = (b'BEGIN"', b'END"', b'BEGIN\\"', b'END\\"')
"""Its values, also where the message is a text within a line."""
_MAX_DIGITS: Final = 18
"""Of a position; a longer one may be beyond 64 bits."""


class _Count(msgspec.Struct, frozen=True, gc=False):
    """Number of changes of one table."""

    data_collection: str
    event_count: Long | None = None


class _PlainBoundary(Moments, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The value of such a message, without a schema block."""

    status: Literal["BEGIN", "END"]
    id: str
    event_count: Long | None = None
    data_collections: list[_Count] | None = None
    ts_ns: Any = None


_LINES: Final = msgspec.json.Decoder(PlainLine[Any, _PlainBoundary])
_VALUES: Final = msgspec.json.Decoder(_PlainBoundary)


def may_be_boundary(text: bytes) -> bool:
    """Return whether a text may begin or end a transaction; few others look similar."""
    return _STATUS in text and any(word in text for word in _WORDS)


def plain_boundary(sent: Sent, position: int) -> TransactionBegin | TransactionEnd | None:
    """Return the beginning or end of a transaction; None for everything else, and for unusual forms.

    Args:
        sent: a line, or a message, which has its own position.
        position: position of the line.
    """
    try:
        if isinstance(sent, bytes):
            is_usual = may_be_boundary(sent) and is_utf8(sent)
            return _content_of(_LINES.decode(sent).value, position) if is_usual else None
        value = sent.value
        if not (isinstance(value, bytes) and may_be_boundary(value) and has_utf8_parts(sent)):
            return None
        return _content_of(_VALUES.decode(value), sent.position)
    except (ValueError, RecursionError):
        return None


def _content_of(boundary: _PlainBoundary, position: int) -> TransactionBegin | TransactionEnd | None:
    transaction_id, _, lsn = boundary.id.partition(":")
    if boundary.status == "BEGIN":
        return TransactionBegin(transaction_id, boundary.micros, position)
    if len(lsn) > _MAX_DIGITS:
        return None
    counts = {item.data_collection: item.event_count or 0 for item in boundary.data_collections or ()}
    commit_lsn = int(lsn) if lsn.isascii() and lsn.isdecimal() else None
    return TransactionEnd(transaction_id, boundary.event_count, counts, boundary.micros, position, commit_lsn)
