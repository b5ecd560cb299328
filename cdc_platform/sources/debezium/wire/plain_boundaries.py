"""Beginnings and ends of transactions in their usual form, parsed into their types.

A stream of small transactions has almost as many of them as changes.
"""

from typing import Any, Final, Literal

import msgspec

from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform.sources.debezium.wire.messages import Sent, is_utf8
from cdc_platform.sources.debezium.wire.plain_lines import Long, PlainLine

_STATUS: Final = b'"status"'
_MAX_DIGITS: Final = 18
"""Of a position; a longer one may be beyond 64 bits."""


class _Count(msgspec.Struct, frozen=True, gc=False):
    """Number of changes of one table."""

    data_collection: str
    event_count: Long | None = None


class _PlainBoundary(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The value of such a message, without a schema block."""

    status: Literal["BEGIN", "END"]
    id: str
    event_count: Long | None = None
    data_collections: list[_Count] | None = None
    ts_ms: Long | None = None
    ts_us: Long | None = None
    ts_ns: Any = None

    @property
    def micros(self) -> int | None:
        """Time of the beginning or end."""
        return self.ts_us if self.ts_us is not None or self.ts_ms is None else self.ts_ms * 1000


_LINES: Final = msgspec.json.Decoder(PlainLine[Any, _PlainBoundary])
_VALUES: Final = msgspec.json.Decoder(_PlainBoundary)


def plain_boundary(sent: Sent, position: int) -> TransactionBegin | TransactionEnd | None:
    """Return the beginning or end of a transaction; None for everything else, and for unusual forms.

    Args:
        sent: a line, or a message, which has its own position.
        position: position of the line.
    """
    try:
        if isinstance(sent, bytes):
            is_boundary = _STATUS in sent and is_utf8(sent)
            return _content_of(_LINES.decode(sent).value, position) if is_boundary else None
        value, parts = sent.value, (sent.key, sent.value, *(sent.headers or {}).values())
        if not isinstance(value, bytes) or _STATUS not in value:
            return None
        if not all(is_utf8(part) for part in parts if part is not None):
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
