"""Beginnings and ends of transactions in their usual form, parsed into their types.

A stream of small transactions has almost as many of them as changes.
"""

from typing import Any, Final, Literal

import msgspec

from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Content, has_utf8_parts
from cdc_platform.sources.debezium.wire.plain_lines import Long, Moments, PlainLine

_STATUS: Final = b"status"
"""Name of the field that says whether a transaction begins or ends."""
_WORDS: Final = (b'BEGIN"', b'END"', b'BEGIN\\"', b'END\\"')
"""Its values, also where the message is a text within a line."""
_FIRST_FIELD: Final = b'{"status"'
"""Start of a message, since the connector writes the status first."""
_MAX_DIGITS: Final = 18
"""Of a position; a longer one may be beyond 64 bits."""


class _PlainBoundary(Moments, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The value of a BEGIN or END message without a schema block."""

    status: Literal["BEGIN", "END"]
    id: str
    event_count: Long | None = None
    data_collections: Any = None
    ts_ns: Any = None


_LINES: Final = msgspec.json.Decoder(PlainLine[Any, _PlainBoundary])
_VALUES: Final = msgspec.json.Decoder(_PlainBoundary)


def may_be_boundary(text: bytes) -> bool:
    """Return whether a text may begin or end a transaction; few others look similar."""
    return _STATUS in text and any(word in text for word in _WORDS)


def plain_boundary(content: Content) -> TransactionBegin | TransactionEnd | None:
    """Return the beginning or end of a transaction; None for everything else, and for unusual forms."""
    try:
        if isinstance(content, bytes):
            return _content_of(_LINES.decode(content).value) if may_be_boundary(content) else None
        value = content.value
        is_usual = isinstance(value, bytes) and value.startswith(_FIRST_FIELD) and has_utf8_parts(content)
        return _content_of(_VALUES.decode(value)) if is_usual and value else None
    except (ValueError, RecursionError):
        return None


def _content_of(boundary: _PlainBoundary) -> TransactionBegin | TransactionEnd | None:
    transaction_id, _, lsn = boundary.id.partition(":")
    if boundary.status == "BEGIN":
        return TransactionBegin(transaction_id, boundary.micros)
    if len(lsn) > _MAX_DIGITS:
        return None
    commit_lsn = int(lsn) if lsn.isascii() and lsn.isdecimal() else None
    return TransactionEnd(transaction_id, boundary.event_count, commit_lsn)
