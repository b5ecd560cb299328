"""Parts of messages as JSON, and the schema blocks around them; equal blocks are parsed once."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from cdc_platform.sources.debezium.wire.stored_blocks import read_block
from cdc_platform.sources.json_codec import parser_of

_MAX_BLOCKS: Final = 500
"""Different schema blocks that are kept: a few of each version of each table."""
load_json: Final = parser_of(Decimal, str)
"""Returns a JSON value whose numbers keep all their digits; raises ValueError where there is no JSON."""
Value = TypeVar("Value")


class TypedBlock(msgspec.Struct, Generic[Value], frozen=True, gc=False, forbid_unknown_fields=True):
    """A key or value with its schema block, which is not parsed."""

    schema: msgspec.Raw
    payload: Value


RAW_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PARTS: Final = msgspec.json.Decoder(TypedBlock[Any], float_hook=Decimal)
_BLOCK_BEGINS: Final = (b'{"schema":', '{"schema":')


class Fields(list[Mapping[str, Any]]):
    """The fields of a schema block."""

    @cached_property
    def form(self) -> str:
        """A text that is equal for equal fields."""
        return str(self)


class SchemaBlock(dict[str, Any]):
    """A schema block, which is the same object for most messages that have it."""

    @cached_property
    def fields(self) -> Fields | None:
        """The fields of the block."""
        return fields_of(self)

    @cached_property
    def row_fields(self) -> Fields | None:
        """Fields of the row in the block of an envelope."""
        rows = {field.get("field"): field for field in self.get("fields") or ()}
        return fields_of(rows.get("after")) or fields_of(rows.get("before"))


def fields_of(block: Mapping[str, Any] | None) -> Fields | None:
    """Return the fields of a schema block."""
    return None if block is None else Fields(block.get("fields") or ()) or None


def load_part(text: str | bytes) -> Any:
    """Return the JSON of a key, value or header, as `load_json` does; equal schema blocks are parsed once."""
    if not has_block(text):
        return load_json(text)
    try:
        part = _PARTS.decode(text)
        return {"schema": parsed_block(bytes(part.schema)), "payload": part.payload}
    except (ValueError, RecursionError, ArithmeticError):
        return load_json(text)


def has_block(text: str | bytes) -> bool:
    """Return whether the text of a key or value begins with a schema block."""
    return text[: len(_BLOCK_BEGINS[0])] in _BLOCK_BEGINS


@lru_cache(_MAX_BLOCKS)
def parsed_block(text: bytes) -> Any:
    """Return a schema block: a `SchemaBlock` if it has the documented form, else its plain JSON.

    Args:
        text: the block, or the name of its file in a spool.

    Raises:
        ValueError: it is not JSON.
        SpoolAbsent: this process reads no spool.
        SpoolUnusable: the file is missing.
    """
    block = load_json(read_block(text.decode()) if text.startswith(b'"') else text)
    return SchemaBlock(block) if isinstance(block, dict) else block


def payload_of(part: Any) -> Any:
    """Return the content of a key, value or header, without the schema block around it."""
    return part_of(part)[0]


def part_of(part: Any) -> tuple[Any, SchemaBlock | None]:
    """Return the content of a key or value, and the schema block around it; None without a block.

    A block may be null, and a row may have columns of the same names.
    """
    if not isinstance(part, dict) or part.keys() != _PAIR:
        return part, None
    block = part["schema"]
    if type(block) is dict:
        block = SchemaBlock(block)
    if block is None or isinstance(block, SchemaBlock):
        return part["payload"], block
    return part, None


_PAIR: Final = frozenset({"schema", "payload"})
