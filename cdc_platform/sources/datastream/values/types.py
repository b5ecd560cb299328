"""Types of columns as Datastream knows them: its unified types, and what each becomes in the lake."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cdc_platform.model.schema.table_schema import ARRAY, DECIMAL, NO_VALUES, PG_NUMERIC, ColumnType


class Kind(StrEnum):
    """Kind of a value; the names are those of Datastream's unified types."""

    BOOLEAN = "BOOLEAN"
    """true or false; MySQL's BOOL is an INTEGER of 0 and 1."""
    INTEGER = "INTEGER"
    """A whole number of at most 32 bits."""
    LONG = "LONG"
    """A whole number of 64 bits with a sign."""
    FLOAT = "FLOAT"
    """A float of 32 bits."""
    DOUBLE = "DOUBLE"
    """A float of 64 bits."""
    DECIMAL = "DECIMAL"
    """A decimal of a precision and scale, which may be beyond what Spark can hold."""
    NUMBER = "NUMBER"
    """A number of any size as text: Oracle's NUMBER without precision, MySQL's BIGINT UNSIGNED."""
    STRING = "STRING"
    """Text; also enums, UUIDs, and MySQL's binary columns, which come as hex digits."""
    VARCHAR = "VARCHAR"
    """Text that came in a record of value and length, as in 2020."""
    BYTES = "BYTES"
    """Bytes."""
    DATE = "DATE"
    """A day."""
    DATETIME = "DATETIME"
    """A moment of a clock on a wall, without a zone."""
    TIMESTAMP = "TIMESTAMP"
    """A moment."""
    TIMESTAMP_WITH_TIMEZONE = "TIMESTAMP_WITH_TIMEZONE"
    """A moment, and the offset it was written with."""
    TIME = "TIME"
    """A time of day."""
    TIME_WITH_TIMEZONE = "TIME_WITH_TIMEZONE"
    """A time of day with its offset."""
    TIME_INTERVAL = "TIME_INTERVAL"
    """Microseconds between two events, as MySQL's TIME: negative, and beyond a day."""
    INTERVAL = "INTERVAL"
    """Months, hours and microseconds."""
    JSON = "JSON"
    """A JSON document."""
    ARRAY = "ARRAY"
    """An array of the element's kind; its depth is the value's, not the type's."""
    OTHER = "OTHER"
    """A shape that this version has no column for; it is kept as its JSON."""
    UNKNOWN = "UNKNOWN"
    """Nothing but NULL was seen, and there is no schema."""


_ANY_PRECISION: Final = 10_000

UNKNOWN_TYPE: Final = ColumnType(NO_VALUES)
"""Type of a column of which only NULL was seen, in a file without a schema: it says nothing."""

_COLUMN_TYPES: Final = {
    Kind.BOOLEAN: ColumnType("BOOL"),
    Kind.INTEGER: ColumnType("INT64"),
    Kind.LONG: ColumnType("INT64"),
    Kind.FLOAT: ColumnType("FLOAT32"),
    Kind.DOUBLE: ColumnType("FLOAT64"),
    Kind.NUMBER: ColumnType("NUMERIC", annotation=PG_NUMERIC),
    Kind.STRING: ColumnType("STRING"),
    Kind.VARCHAR: ColumnType("STRING"),
    Kind.BYTES: ColumnType("BYTES"),
    Kind.DATE: ColumnType("DATE"),
    Kind.DATETIME: ColumnType("DATETIME"),
    Kind.TIMESTAMP: ColumnType("TIMESTAMP"),
    Kind.TIMESTAMP_WITH_TIMEZONE: ColumnType("TIMESTAMP"),
    Kind.TIME: ColumnType("STRING"),
    Kind.TIME_WITH_TIMEZONE: ColumnType("STRING"),
    Kind.TIME_INTERVAL: ColumnType("INTERVAL"),
    Kind.INTERVAL: ColumnType("INTERVAL"),
    Kind.JSON: ColumnType("JSON"),
    Kind.OTHER: ColumnType("JSON"),
    Kind.UNKNOWN: UNKNOWN_TYPE,
}


@dataclass(frozen=True, slots=True)
class FieldType:
    """The kind of a column, and what else its values need to be read.

    Args:
        kind: what a value is.
        precision: of a DECIMAL, digits in all; 0 for others.
        scale: of a DECIMAL, digits after the point; may be negative.
        element: of an ARRAY.
        micros_per_unit: of a moment or a time that Avro counts, 1 or 1000.
        encoding: of BYTES that come as text, `hex` or `base64`; empty where nobody said.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: "FieldType | None" = None
    micros_per_unit: int = 1
    encoding: str = ""

    @property
    def column_type(self) -> ColumnType:
        """The type of the lake's column."""
        if self.kind is Kind.DECIMAL:
            return ColumnType(DECIMAL, annotation=f"{self.precision},{self.scale}")
        if self.kind is Kind.ARRAY and self.element is not None:
            return ColumnType(ARRAY, self.element.column_type)
        return _COLUMN_TYPES[self.kind]

    def without_bound(self) -> "FieldType":
        """Return the type, with decimals of any digits: another type that is declared judges them."""
        if self.element is not None:
            return replace(self, element=self.element.without_bound())
        return replace(self, precision=_ANY_PRECISION) if self.kind is Kind.DECIMAL else self


Fields = tuple[tuple[str, FieldType], ...]
"""Name and type of each column of a payload, in its order."""
