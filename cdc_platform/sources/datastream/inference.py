"""Types of columns in JSON files without a schema, from all values that a file has.

Nothing that would lose a digit is guessed: a number with a point may be a decimal as well as a float, so it
is a NUMBER, which is text; a text stays one, whatever it looks like. What a file cannot tell is to be
declared.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any, Final

from cdc_platform.model.table_schema import MAX_INT64
from cdc_platform.sources.datastream.columns import HugeInteger, RowBatch, WideInteger
from cdc_platform.sources.datastream.json_text import NON_FINITE, JsonNumber
from cdc_platform.sources.datastream.types import Fields, FieldType, Kind

_UNKNOWN: Final = FieldType(Kind.UNKNOWN)
_JSON: Final = FieldType(Kind.JSON)
_LONG: Final = FieldType(Kind.LONG)
_NUMBER: Final = FieldType(Kind.NUMBER)
_BY_PYTHON: Final[Mapping[type, FieldType]] = {
    bool: FieldType(Kind.BOOLEAN),
    int: _LONG,
    WideInteger: _LONG,
    HugeInteger: _NUMBER,
    str: FieldType(Kind.STRING),
    JsonNumber: _NUMBER,
    dict: _JSON,
    type(None): _UNKNOWN,
}


def type_of_value(value: Any) -> FieldType:
    """Return the type of one JSON value."""
    if isinstance(value, list):
        return _array_type(value)
    if type(value) is int:
        return _LONG if -MAX_INT64 - 1 <= value <= MAX_INT64 else _NUMBER
    if isinstance(value, JsonNumber) and value in NON_FINITE:
        return FieldType(Kind.DOUBLE)
    return _BY_PYTHON[type(value)]


def joined(one: FieldType, other: FieldType) -> FieldType:
    """Return the type that has room for the values of both."""
    if other in (one, _UNKNOWN):
        return one
    if one == _UNKNOWN:
        return other
    if {one.kind, other.kind} <= {Kind.LONG, Kind.NUMBER, Kind.DOUBLE}:
        return _NUMBER
    if one.element is not None and other.element is not None:
        element = joined(one.element, other.element)
        return _JSON if element.kind is Kind.JSON else FieldType(Kind.ARRAY, element=element)
    return _JSON


def type_of_column(values: Sequence[Any], types: AbstractSet[type]) -> FieldType:
    """Return the type that has room for all values of a column.

    Args:
        values: the values.
        types: their types, as `types_of` tells them.
    """
    # An object among them makes JSON of any numbers, and cannot be looked for.
    are_numbers = JsonNumber in types and dict not in types
    if list in types or (are_numbers and not NON_FINITE.isdisjoint(values)):
        return reduce(joined, map(type_of_value, values), _UNKNOWN)
    return reduce(joined, (_BY_PYTHON[each] for each in types), _UNKNOWN)


class Inference:
    """Gathers the types of the columns of one table and schema."""

    def __init__(self) -> None:
        self._types: dict[str, FieldType] = {}

    def add(self, batch: RowBatch) -> None:
        """Take the values of some rows into account."""
        types = self._types
        for name, values in batch.columns.items():
            found = type_of_column(values, batch.types[name])
            types[name] = joined(types.get(name, _UNKNOWN), found)

    @property
    def fields(self) -> Fields:
        """The columns, in the order in which they came up."""
        return tuple((name, _settled(field)) for name, field in self._types.items())


def _array_type(items: Iterable[Any]) -> FieldType:
    element = _UNKNOWN
    for item in items:
        if isinstance(item, list | dict):
            return _JSON
        element = joined(element, type_of_value(item))
    return FieldType(Kind.ARRAY, element=element) if element.kind is not Kind.JSON else _JSON


def _settled(field: FieldType) -> FieldType:
    """Return the type; an array of which no element was seen is one of texts."""
    if field.element == _UNKNOWN:
        return FieldType(Kind.ARRAY, element=FieldType(Kind.STRING))
    return field
