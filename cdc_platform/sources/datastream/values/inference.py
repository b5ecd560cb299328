"""Inference of column types in JSON files without a schema, from all values of a file.

No guess may lose a digit: a number with a point may be a decimal or a float, so it becomes a NUMBER, which is
text. A string stays a string, even if it looks like another type. Users declare the types that a file does
not show.

Types of several files are joined by the lake's rules, and the text of a value depends only on the value, so
tables do not depend on the distribution of rows over files.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any, Final

from cdc_platform.model.base.names import case_key
from cdc_platform.model.schema.table_schema import MAX_INT64
from cdc_platform.sources.datastream.values.columns import HugeInteger, RowBatch, WideInteger
from cdc_platform.sources.datastream.values.json_text import NON_FINITE, JsonNumber
from cdc_platform.sources.datastream.values.types import Fields, FieldType, Kind

_UNKNOWN: Final = FieldType(Kind.UNKNOWN)
_TEXT: Final = FieldType(Kind.STRING)
_JSON: Final = FieldType(Kind.JSON)
_LONG: Final = FieldType(Kind.LONG)
_NUMBER: Final = FieldType(Kind.NUMBER)
_BY_PYTHON: Final[Mapping[type, FieldType]] = {
    bool: FieldType(Kind.BOOLEAN),
    int: _LONG,
    WideInteger: _LONG,
    HugeInteger: _NUMBER,
    str: _TEXT,
    JsonNumber: _NUMBER,
    dict: _JSON,
    list: _JSON,
    type(None): _UNKNOWN,
}
_DOCUMENTS: Final = frozenset({dict, list})


def type_of_value(value: Any) -> FieldType:
    """Return the type of one JSON value."""
    if type(value) is int:
        return _LONG if -MAX_INT64 - 1 <= value <= MAX_INT64 else _NUMBER
    if isinstance(value, JsonNumber) and value in NON_FINITE:
        return FieldType(Kind.DOUBLE)
    return _BY_PYTHON[type(value)]


def join_types(first: FieldType, other: FieldType) -> FieldType:
    """Return a type that can represent the values of both."""
    if other in (first, _UNKNOWN):
        return first
    if first == _UNKNOWN:
        return other
    if {first.kind, other.kind} <= {Kind.LONG, Kind.NUMBER, Kind.DOUBLE}:
        return _NUMBER
    return _TEXT


def type_of_column(values: Sequence[Any], types: AbstractSet[type]) -> FieldType:
    """Return a type that can represent all values of a column; `types_of` returns their types."""
    # With an object or an array among them, all numbers are text, and objects cannot be searched.
    if JsonNumber in types and types.isdisjoint(_DOCUMENTS) and not NON_FINITE.isdisjoint(values):
        return reduce(join_types, map(type_of_value, values), _UNKNOWN)
    return reduce(join_types, (_BY_PYTHON[each] for each in types), _UNKNOWN)


class Inference:
    """Collects the types of the columns of one table and schema."""

    def __init__(self) -> None:
        self._types: dict[str, FieldType] = {}
        self._rows = Counter[str]()
        self._together = set[str]()

    def add(self, batch: RowBatch) -> None:
        """Include the values of rows whose columns have been included."""
        for name, values in batch.columns.items():
            self._types[name] = join_types(self._types[name], type_of_column(values, batch.types[name]))

    def add_columns(self, names: Sequence[str], rows: int) -> None:
        """Include the columns of a number of rows."""
        for name in names:
            self._types.setdefault(name, _UNKNOWN)
            self._rows[name] += rows
        keys = Counter(map(case_key, names))
        self._together.update(key for key, count in keys.items() if count > 1)

    def columns(self) -> tuple[Fields, Mapping[str, str]]:
        """Return the columns in the order of their first appearance, without variants, and the variants.

        Variants are columns that differ only in case from a column that more rows have; they come with that
        column. No row has both: names in one row are two columns of the source.
        """
        commonest: dict[str, str] = {}
        for name, _ in self._rows.most_common():
            commonest.setdefault(case_key(name), name)
        variants = {
            name: commonest[key]
            for name in self._types
            if commonest[key := case_key(name)] != name and key not in self._together
        }
        return tuple(item for item in self._types.items() if item[0] not in variants), variants
