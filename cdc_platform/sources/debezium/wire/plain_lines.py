"""Messages of plain changes, which most messages are, parsed into their types.

The types say what the decoder would otherwise ask of each: an insert, update or delete of a row with a key,
or a row of a snapshot that is neither its first nor its last one, with its transaction and its log position.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

from cdc_platform.sources.debezium.wire.envelope import NEW_KEY, OLD_KEY, SEQUENCE
from cdc_platform.sources.debezium.wire.messages import (
    Content,
    RawMessage,
    has_block_in,
    has_utf8_parts,
    is_utf8,
    parse_header,
)
from cdc_platform.sources.debezium.wire.positions import ORDERS
from cdc_platform.sources.debezium.wire.schema_blocks import (
    SchemaBlock,
    TypedBlock,
    Value,
    has_block,
    parsed_block,
    part_of,
)
from cdc_platform.sources.debezium.wire.stored_blocks import SpoolAbsent

RUN_ID: Final = "__debezium.context.runId"
_OF_UPDATE: Final = b'"u"'
_OF_INSERT: Final = b'"c"'
_OF_SNAPSHOT: Final = b'"r"'
_OF_DELETE: Final = b'"d"'
"""Each plain change has one of them, so most other messages need not be parsed as one."""
_STATES_COMMIT: Final = '["'
"""Beginning of `sequence` if it states the commit before the event's own."""


Key = TypeVar("Key")
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Moments(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The time of a change or boundary, which newer connectors state in microseconds."""

    ts_us: Long | None = None
    ts_ms: Long | None = None

    @property
    def micros(self) -> int | None:
        """The time."""
        return self.ts_us if self.ts_us is not None or self.ts_ms is None else self.ts_ms * 1000


class PlainSource(Moments, frozen=True, gc=False, kw_only=True):
    """The block `source` of an envelope, without unused members."""

    name: str
    db: str
    schema: str
    table: str
    version: str
    snapshot: Literal["false", "", "true"] | None = None
    txId: Long  # noqa: N815  Debezium's own name
    lsn: Long
    sequence: Annotated[str, msgspec.Meta(pattern=SEQUENCE)]
    commit_lsn: Long | msgspec.UnsetType | None = msgspec.UNSET


class PlainTransaction(msgspec.Struct, frozen=True, gc=False):
    """The block `transaction` of an envelope."""

    id: str | None = None
    total_order: Annotated[int, msgspec.Meta(ge=0, lt=ORDERS)] | None = None


class PlainEnvelope(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The envelope of a change that has no other members."""

    op: Literal["c", "u", "r", "d"]
    source: PlainSource
    after: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    transaction: PlainTransaction | None = None
    ts_ms: Any = None
    ts_us: Any = None
    ts_ns: Any = None


class PlainLine(
    msgspec.Struct,
    Generic[Key, Value],
    frozen=True,
    gc=False,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """The line of a change: topic, key and value, which are JSON and may have schema blocks."""

    key: Key
    value: Value
    topic: str | None = None
    headers: dict[str, Any] | None = None
    partition: Long | None = None
    offset: Long | None = None
    timestamp: Long | None = None


class PlainChange(msgspec.Struct, frozen=True, gc=False):
    """A change, with the schema blocks of its row and key."""

    envelope: PlainEnvelope
    key: dict[str, Any]
    headers: Mapping[str, Any] | None
    offset: int | None
    block: SchemaBlock | None = None
    key_block: SchemaBlock | None = None

    @property
    def run_id(self) -> object:
        """The connector's run, if the message has its headers."""
        return (parse_header(self.headers.get(RUN_ID)) or None) if self.headers else None


_LINES: Final = msgspec.json.Decoder(PlainLine[dict[str, Any], PlainEnvelope], float_hook=Decimal)
_LINES_WITH_BLOCKS: Final = msgspec.json.Decoder(
    PlainLine[TypedBlock[dict[str, Any]], TypedBlock[PlainEnvelope]], float_hook=Decimal
)
_VALUES: Final = msgspec.json.Decoder(PlainEnvelope, float_hook=Decimal)
_VALUES_WITH_BLOCKS: Final = msgspec.json.Decoder(TypedBlock[PlainEnvelope], float_hook=Decimal)
_KEYS: Final = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
_KEYS_WITH_BLOCKS: Final = msgspec.json.Decoder(TypedBlock[dict[str, Any]], float_hook=Decimal)


def plain_change(content: Content) -> PlainChange | None:
    """Return the plain change of a line or message; None if it is something else."""
    try:
        if isinstance(content, bytes):
            return _of_line(content)
        return _of_raw(content)
    except (ValueError, RecursionError, ArithmeticError, SpoolAbsent):
        return None


def _of_line(text: bytes) -> PlainChange | None:
    if not (_OF_UPDATE in text or _OF_INSERT in text or _OF_SNAPSHOT in text or _OF_DELETE in text):
        return None
    if not is_utf8(text):
        return None
    if has_block_in(text):
        parts = _LINES_WITH_BLOCKS.decode(text)
        return _of_blocks(parts.value, parts.key, parts.headers, parts.offset)
    line = _LINES.decode(text)
    return _check(line.value, line.key, line.headers, line.offset)


def _of_raw(raw: RawMessage) -> PlainChange | None:
    key, value = raw.key, raw.value
    if not (key and value and has_utf8_parts(raw)):
        return None
    if has_block(value) and has_block(key):
        blocks = _VALUES_WITH_BLOCKS.decode(value), _KEYS_WITH_BLOCKS.decode(key)
        return _of_blocks(*blocks, raw.headers, raw.offset)
    return _check(_VALUES.decode(value), _KEYS.decode(key), raw.headers, raw.offset)


def _of_blocks(
    value: TypedBlock[PlainEnvelope],
    key: TypedBlock[dict[str, Any]],
    headers: Mapping[str, Any] | None,
    offset: int | None,
) -> PlainChange | None:
    blocks = [parsed_block(bytes(part.schema)) for part in (value, key)]
    if not all(isinstance(block, SchemaBlock) for block in blocks):
        return None
    return _check(value.payload, key.payload, headers, offset, *blocks)


def _check(
    envelope: PlainEnvelope,
    key: dict[str, Any],
    headers: Mapping[str, Any] | None,
    offset: int | None,
    *blocks: SchemaBlock,
) -> PlainChange | None:
    op, is_snapshot = envelope.op, envelope.source.snapshot == "true"
    images = envelope.after, envelope.before
    image, other = reversed(images) if op == "d" else images
    if not (key and image) or is_snapshot is not (op == "r") or (other is not None and op != "u"):
        return None
    if part_of(key)[0] is not key:  # the key alone has a block
        return None
    if not (is_snapshot or envelope.source.sequence.startswith(_STATES_COMMIT)):
        return None
    if headers and (OLD_KEY in headers or NEW_KEY in headers):
        return None
    return PlainChange(envelope, key, headers, offset, *blocks)
