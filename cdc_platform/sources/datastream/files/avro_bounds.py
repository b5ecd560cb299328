"""Limits of Avro schemas, so that values are finite: no type contains itself, and array items take bytes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cdc_platform.sources.datastream.files.avro_names import DEFINITIONS, PARTS, PRIMITIVES, Schema
from cdc_platform.sources.datastream.settings.bounds import Bounds

ARRAY_RECORD: Final = ("nestedArray", "elementValue")
"""Fields of Datastream's record for an array, the only type that may contain itself."""
_SIZES: Final = ("precision", "scale")
_NULLS: Final[Sequence[Schema]] = ("null", {"type": "null"})
_MAX_EMPTY: Final = 10
"""Maximum number of values of a record that take no byte: bare nulls, which no source of Datastream has."""


def check_extent(schema: Schema, bounds: Bounds) -> None:
    """Check the depth of a schema and the digits of its decimals.

    Raises:
        ValueError: they exceed the limits.
    """
    parts, depth = [schema], 0
    while parts:
        depth += 1
        if depth > bounds.max_depth:
            raise ValueError(f"it is deeper than {bounds.max_depth} levels; see the setting `max_depth`")
        for part in parts:
            _check_digits(part, bounds)
        parts = [inner for part in parts for inner in _inner(part) if isinstance(inner, list | Mapping)]


def _inner(part: Schema) -> list[Schema]:
    return part if isinstance(part, list) else list(part.values()) if isinstance(part, Mapping) else []


def _check_digits(part: Schema, bounds: Bounds) -> None:
    sizes = [part[name] for name in _SIZES if name in part] if isinstance(part, Mapping) else []
    if not all(type(size) is int and abs(size) <= bounds.max_digits for size in sizes):
        raise ValueError(
            f"a decimal of it has more than {bounds.max_digits} digits; see the setting `max_digits`"
        )


def max_values_of(schema: Schema, bounds: Bounds) -> int:
    """Return how many values a record may have whose text, with the schema's own names, is within the bounds.

    An item of an array takes a byte, and as text the name of each of its fields, or a whole symbol.

    Args:
        schema: the schema as Avro's library has parsed it.
        bounds: the limits.
    """
    longest, parts = 1, [schema]
    while parts:
        part = parts.pop()
        parts += [inner for inner in _inner(part) if isinstance(inner, list | Mapping)]
        if isinstance(part, Mapping):
            texts = [part.get("name", ""), *part.get("symbols", ())]
            longest = max(longest, *(len(text) for text in texts if isinstance(text, str)))
    return min(bounds.max_values, bounds.max_block_bytes // longest)


def unroll(schema: Schema, max_depth: int) -> Schema:
    """Return a qualified schema that has arrays within arrays as their own types, up to a depth."""
    if isinstance(schema, list):
        return [unroll(branch, max_depth) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    if _is_array(schema):
        return _levels(schema, max_depth)
    return {name: unroll(part, max_depth) if name in PARTS else part for name, part in schema.items()}


def _is_array(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is of arrays that may lie in each other, of which the outer ones come first."""
    fields = schema.get("fields") if schema.get("type") == "record" else None
    if not isinstance(fields, list) or [field.get("name") for field in fields] != [*ARRAY_RECORD]:
        return False
    return bool(_nesting(fields[0], schema["name"], None) != fields[0])


def _levels(record: Mapping[str, Any], max_depth: int) -> Schema:
    """Return the record with a nested record of another name, and so on; deeper arrays cannot be read."""
    base, (nested, element) = record["name"], record["fields"]
    level: Schema = {"type": "enum", "name": f"{base}__too_deep", "symbols": []}
    # A type is defined at its first use, which is in the innermost record.
    element = unroll(element, max_depth)
    for number in range(max_depth, -1, -1):
        fields = [_nesting(nested, base, level), element]
        level = {**record, "name": f"{base}__{number}" if number else base, "fields": fields}
        element = {**element, "type": _references(element["type"])}
    return level


def _nesting(part: Schema, name: str, inner: Schema) -> Schema:
    """Return a part of a schema with a type in place of a name."""
    if isinstance(part, list):
        return [_nesting(branch, name, inner) for branch in part]
    if isinstance(part, Mapping):
        return {key: _nesting(item, name, inner) if key in PARTS else item for key, item in part.items()}
    return inner if part == name else part


def _references(schema: Schema) -> Schema:
    """Return a schema whose types that have names are defined elsewhere."""
    if isinstance(schema, list):
        return [_references(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("type") in DEFINITIONS:
        return schema["name"]
    return {name: _references(part) if name in PARTS else part for name, part in schema.items()}


@dataclass(frozen=True)
class Extent:
    """Size of a value: levels of types within types, and parts of no byte; ``is_empty`` if all are.

    ``empty_in_items`` are those of an item of an array or a map, of which there may be as many as bytes.
    """

    depth: int = 1
    empty: int = 0
    is_empty: bool = False
    empty_in_items: int = 0


@dataclass
class Extents:
    """Extents of types by full name, without the types that are being measured."""

    max_depth: int
    by_name: dict[str, Extent | None] = field(default_factory=dict)

    def measure(self, schema: Schema) -> Extent:
        """Return the maximum extent of a value of a schema whose size its bytes limit.

        Args:
            schema: the schema as Avro's library has parsed it, so that names mean what they mean there.

        Raises:
            ValueError: a type contains itself, is too deep by the names in it, or has endlessly many empty
                parts.
        """
        extent = self._measure(schema)
        # Nested arrays add to the depth.
        if extent.depth > 8 * self.max_depth:
            raise ValueError(
                f"its values are deeper than {self.max_depth} levels; see the setting `max_depth`"
            )
        if extent.empty > _MAX_EMPTY:
            raise ValueError(f"a record of it has more than {_MAX_EMPTY} parts that take no byte")
        return extent

    def _measure(self, schema: Schema) -> Extent:
        if isinstance(schema, str):
            return self._named_extent(schema)
        if isinstance(schema, list):
            # The number of the branch takes a byte, which a null in a union comes with.
            branches = (branch for branch in schema if branch not in _NULLS)
            return _around([self.measure(branch) for branch in branches], max)
        base = schema["type"]
        if base in ("record", "error"):
            return self._record(schema)
        if base in ("array", "map"):
            return self._items(schema, "items" if base == "array" else "values")
        if base in ("fixed", "enum"):
            is_empty = base == "fixed" and schema["size"] == 0
            return self._define(schema, Extent(empty=int(is_empty), is_empty=is_empty))
        return self.measure(base)

    def _named_extent(self, name: str) -> Extent:
        if name in PRIMITIVES:
            return Extent(empty=1, is_empty=True) if name == "null" else Extent()
        extent = self.by_name[name]
        if extent is None:
            raise ValueError(f"its type `{name}` contains itself, which only Datastream's arrays may")
        return extent

    def _items(self, schema: Mapping[str, Any], part: str) -> Extent:
        item = self.measure(schema[part])
        if item.is_empty and part == "items":
            raise ValueError("the items of an array of it take no byte, so that there may be endlessly many")
        return Extent(item.depth + 1, empty_in_items=max(item.empty, item.empty_in_items))

    def _record(self, schema: Mapping[str, Any]) -> Extent:
        self.by_name[schema["name"]] = None
        parts = [self.measure(field["type"]) for field in schema["fields"]]
        extent = _around(parts, sum)
        return self._define(schema, replace(extent, is_empty=all(part.is_empty for part in parts)))

    def _define(self, schema: Mapping[str, Any], extent: Extent) -> Extent:
        self.by_name[schema["name"]] = extent
        return extent


def _around(parts: Sequence[Extent], total: Callable[[Iterable[int]], int]) -> Extent:
    """Return the extent of what has parts, all of them or one."""
    return Extent(
        max((part.depth for part in parts), default=0) + 1,
        total([0, *(part.empty for part in parts)]),
        empty_in_items=max((part.empty_in_items for part in parts), default=0),
    )
