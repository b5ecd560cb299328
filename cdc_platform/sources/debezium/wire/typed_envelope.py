"""The documented envelope of a change, parsed by its types; other forms are parsed freely."""

from decimal import Decimal
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class TypedSource(msgspec.Struct, frozen=True, gc=False):
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


class TypedTransaction(msgspec.Struct, frozen=True, gc=False):
    """The block `transaction` of an envelope."""

    id: str | None = None
    total_order: Long | None = None


class TypedEnvelope(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The envelope of a change of a row or a table."""

    op: Literal["c", "u", "d", "r", "t"]
    source: TypedSource
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    transaction: TypedTransaction | None = None
    ts_ms: Any = None
    ts_us: Any = None
    ts_ns: Any = None


Key = TypeVar("Key")
Value = TypeVar("Value")


class TypedBlock(msgspec.Struct, Generic[Value], frozen=True, gc=False, forbid_unknown_fields=True):
    """A key or value with its schema block, which is not parsed."""

    schema: msgspec.Raw
    payload: Value


class TypedLine(msgspec.Struct, Generic[Key, Value], frozen=True, gc=False, forbid_unknown_fields=True):
    """The line of a change: an object of topic, key and value, which are JSON instead of strings."""

    value: Value
    topic: str | None = None
    key: Key | msgspec.UnsetType | None = msgspec.UNSET
    headers: dict[str, Any] | None = None
    partition: Long | None = None
    offset: Long | None = None
    timestamp: Long | None = None


AnyKey = dict[str, Any]
_LINES: Final = msgspec.json.Decoder(TypedLine[AnyKey, TypedEnvelope], float_hook=Decimal)
_LINES_WITH_BLOCKS: Final = msgspec.json.Decoder(
    TypedLine[TypedBlock[AnyKey], TypedBlock[TypedEnvelope]], float_hook=Decimal
)
_ENVELOPES: Final = msgspec.json.Decoder(TypedEnvelope, float_hook=Decimal)
_ENVELOPES_WITH_BLOCKS: Final = msgspec.json.Decoder(TypedBlock[TypedEnvelope], float_hook=Decimal)
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError, ArithmeticError)


def typed_envelope(text: str | bytes, *, has_block: bool) -> TypedEnvelope | TypedBlock[TypedEnvelope] | None:
    """Return the envelope in a JSON text, with its block if it has one; None if the text has another form."""
    try:
        return (_ENVELOPES_WITH_BLOCKS if has_block else _ENVELOPES).decode(text)
    except DECODE_ERRORS:
        return None


def typed_line(text: bytes, *, has_blocks: bool) -> TypedLine[Any, Any] | None:
    """Return the same of a line; if it has blocks, key and value have one each."""
    try:
        return (_LINES_WITH_BLOCKS if has_blocks else _LINES).decode(text)
    except DECODE_ERRORS:
        return None
