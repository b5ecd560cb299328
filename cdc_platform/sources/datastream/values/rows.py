"""Rows of one table and schema: their columns and the readers of these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.datastream.values.types import Fields, FieldType, Kind
from cdc_platform.sources.datastream.values.values import (
    Reader,
    array_reader,
    declared_reader,
    is_wide,
    json_reader,
    plain_types,
)

Columns = tuple[tuple[str, ColumnType], ...]
NativeReader = Callable[..., Reader | None]
"""Either `avro_reader` or `json_reader`."""


def problem_of(error: Exception) -> str:
    """Return the reason why an event is invalid, from an error in `MALFORMED`."""
    if isinstance(error, RecursionError):
        return "The event is nested too deeply"
    return str(error) if isinstance(error, ValueError) else f"The event is not as documented: {error!r}"


_NONE: Final[frozenset[type]] = frozenset()
_NESTED: Final[frozenset[type]] = frozenset({dict, list})
_DOCUMENTS: Final[Mapping[Kind, frozenset[type]]] = {
    **dict.fromkeys((Kind.STRING, Kind.UNKNOWN), _NESTED),
    **dict.fromkeys((Kind.JSON, Kind.OTHER), _NESTED | {int}),
    # An object is one of its value and length.
    Kind.VARCHAR: frozenset({list}),
}
"""JSON types that a column keeps as text; an integer is one of them because of the sign of a zero."""


class Documents(NamedTuple):
    """A column that keeps the raw JSON of values with some types, or of the elements of its arrays."""

    name: str
    types: frozenset[type]
    elements: frozenset[type] = _NONE

    @classmethod
    def of(cls, name: str, field: FieldType) -> "Documents | None":
        """Return the part of a column that is kept as raw JSON; None for no part."""
        if field.kind in _DOCUMENTS:
            return cls(name, _DOCUMENTS[field.kind])
        if field.kind is not Kind.ARRAY or field.element is None:
            return None
        # An array within an array is not an element.
        elements = _DOCUMENTS.get(field.element.kind, _NONE) - {list}
        return cls(name, frozenset({list}), elements) if elements else None


class ColumnFaulty(ValueError):
    """The value of a column cannot be read as its type."""


@dataclass(frozen=True)
class RowReader:
    """Reads the payloads of one table and schema.

    Args:
        columns: name and type of each column.
        readers: readers of the columns whose values must be converted.
        documents: columns that keep raw JSON.
    """

    columns: Columns
    readers: tuple[tuple[str, Reader], ...]
    documents: tuple[Documents, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the columns."""
        return frozenset(name for name, _ in self.columns)

    def without_reader(self, name: str) -> "RowReader":
        """Return the same, but leave a column's values unchanged."""
        readers = tuple(pair for pair in self.readers if pair[0] != name)
        documents = tuple(column for column in self.documents if column.name != name)
        return replace(self, readers=readers, documents=documents)

    def specialise(self, types: Mapping[str, frozenset[type]]) -> "RowReader":
        """Return a reader with the same results for rows with these types of values.

        Args:
            types: types by column, as returned by `types_of`.
        """
        readers = tuple(
            (name, reader)
            for name, reader in self.readers
            if not types.get(name, _NONE) <= plain_types(reader)
        )
        documents = tuple(
            column for column in self.documents if not column.types.isdisjoint(types.get(column.name, _NONE))
        )
        return replace(self, readers=readers, documents=documents)

    def read(self, columns: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        """Return the values of the columns of payloads as in `SourceEvent`.

        Raises:
            ColumnFaulty: a value does not have its column's type; the reason names the column.
        """
        row_values = {}
        name = ""
        try:
            for name, reader in self.readers:
                values = columns.get(name)
                if values is not None:
                    row_values[name] = [None if value is None else reader(value) for value in values]
        except MALFORMED as error:
            raise ColumnFaulty(f"Column `{name}`: {problem_of(error)}") from error
        return {**columns, **row_values}


def row_reader(fields: Fields, declarations: Mapping[str, FieldType], native: NativeReader) -> RowReader:
    """Return a reader of rows with the found types, except for declared columns."""
    columns = _shared(tuple((name, (declarations.get(name) or field).column_type) for name, field in fields))
    readers = ((name, column_reader(field, declarations.get(name), native)) for name, field in fields)
    documents = tuple(column for name, field in fields if (column := Documents.of(name, field)) is not None)
    value_readers = tuple((name, reader) for name, reader in readers if reader is not None)
    return RowReader(columns, value_readers, documents=documents)


# Files of a table have the same columns, and what is known of columns is looked up by their identity.
@lru_cache(maxsize=1024)
def _shared(columns: Columns) -> Columns:
    """Return the first of equal columns."""
    return columns


def column_reader(field: FieldType, declaration: FieldType | None, native: NativeReader) -> Reader | None:
    """Return the reader of a column's values; None if they stay unchanged."""
    if declaration is not None and declaration.kind is field.kind is Kind.BYTES:
        # A declaration states how texts encode bytes; Avro's bytes are not texts.
        return native(declaration, is_wide=False)
    if declaration is not None and declaration.kind is field.kind is Kind.ARRAY:
        return _array_reader(field, declaration, native)
    reader = native(field, is_wide=is_wide(declaration))
    if declaration is None:
        return reader
    cast = declared_reader(field, declaration)
    if reader is None:
        return cast

    def both(value: Any) -> Any:
        plain = reader(value)
        return None if plain is None else cast(plain)

    return both


def _array_reader(field: FieldType, declaration: FieldType, native: NativeReader) -> Reader:
    """Return the reader of an array with declared elements, each read like a column."""
    if field.element is None or declaration.element is None:
        return json_reader(declaration)
    element = column_reader(field.element, declaration.element, native)
    return array_reader(element or (lambda value: value), is_wide=False)
