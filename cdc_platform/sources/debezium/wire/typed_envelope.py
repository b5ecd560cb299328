"""The documented envelope of a change, parsed by its types; other forms are parsed freely."""

from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class TypedSource(msgspec.Struct, frozen=True):
    """The block `source` of an envelope, without unused members."""

    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    version: str | None = None
    snapshot: str | None = None
    txId: Long | None = None  # noqa: N815  Debezium's own name
    lsn: Long | None = None
    sequence: str | None = None
    commit_lsn: Long | msgspec.UnsetType | None = msgspec.UNSET
    ts_us: Long | None = None
    ts_ms: Long | None = None

    @property
    def micros(self) -> int | None:
        """Commit time of the change."""
        return self.ts_us if self.ts_us is not None or self.ts_ms is None else self.ts_ms * 1000


class TypedTransaction(msgspec.Struct, frozen=True):
    """The block `transaction` of an envelope."""

    id: str | None = None
    total_order: Long | None = None


class TypedEnvelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The envelope of a change of a row or a table."""

    op: Literal["c", "u", "d", "r", "t"]
    source: TypedSource
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    transaction: TypedTransaction | None = None
    ts_ms: Any = None
    ts_us: Any = None
    ts_ns: Any = None


class TypedLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line of a change: an object of topic, key and value, which are JSON instead of strings."""

    value: TypedEnvelope
    topic: str | None = None
    key: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    headers: dict[str, Any] | None = None
    partition: Long | None = None
    offset: Long | None = None
    timestamp: Long | None = None


_LINE_DECODER: Final = msgspec.json.Decoder(TypedLine, float_hook=Decimal)
_DECODER: Final = msgspec.json.Decoder(TypedEnvelope, float_hook=Decimal)
_OTHERS: Final = (msgspec.DecodeError, UnicodeError, RecursionError, ArithmeticError)


def typed_envelope(text: str | bytes) -> TypedEnvelope | None:
    """Return the envelope in a JSON text; None if the text has another form."""
    try:
        return _DECODER.decode(text)
    except _OTHERS:
        return None


def typed_line(text: bytes) -> TypedLine | None:
    """Return the same of a line."""
    try:
        return _LINE_DECODER.decode(text)
    except _OTHERS:
        return None
