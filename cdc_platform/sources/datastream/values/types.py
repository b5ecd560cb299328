"""Types of columns: Datastream's unified types, and their types in the lake."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cdc_platform.model.schema.table_schema import ARRAY, DECIMAL, NO_VALUES, PG_NUMERIC, ColumnType


class Kind(StrEnum):
    """Kind of a value; the names are those of Datastream's unified types."""

    BOOLEAN = "BOOLEAN"
    """true or false; MySQL's BOOL is an INTEGER with 0 and 1."""
    INTEGER = "INTEGER"
    """A whole number of at most 32 bits."""
    LONG = "LONG"
    """A signed 64-bit whole number."""
    FLOAT = "FLOAT"
    """A 32-bit float."""
    DOUBLE = "DOUBLE"
    """A 64-bit float."""
    DECIMAL = "DECIMAL"
    """A decimal of a precision and scale, possibly beyond Spark's limits."""
    NUMBER = "NUMBER"
    """A number of any size as text: Oracle's NUMBER without precision, MySQL's BIGINT UNSIGNED."""
    STRING = "STRING"
    """Text; also enums, UUIDs, and MySQL's binary columns, as hex digits."""
    VARCHAR = "VARCHAR"
    """Text in a record of value and length, as in 2020."""
    BYTES = "BYTES"
    """Bytes."""
    DATE = "DATE"
    """A day."""
    DATETIME = "DATETIME"
    """A local time without a zone."""
    TIMESTAMP = "TIMESTAMP"
    """A point in time."""
    TIMESTAMP_WITH_TIMEZONE = "TIMESTAMP_WITH_TIMEZONE"
    """A point in time, and its original offset."""
    TIME = "TIME"
    """A time of day."""
    TIME_WITH_TIMEZONE = "TIME_WITH_TIMEZONE"
    """A time of day with an offset."""
    TIME_INTERVAL = "TIME_INTERVAL"
    """Microseconds between two events, like MySQL's TIME, which may be negative or exceed a day."""
    INTERVAL = "INTERVAL"
    """Months, hours and microseconds."""
    JSON = "JSON"
    """A JSON document."""
    ARRAY = "ARRAY"
    """An array of the element's kind; its depth is the value's, not the type's."""
    OTHER = "OTHER"
    """A shape for which this version has no column; it is kept as JSON."""
    UNKNOWN = "UNKNOWN"
    """Only NULLs, without a schema."""


_ANY_PRECISION: Final = 10_000

UNKNOWN_TYPE: Final = ColumnType(NO_VALUES)
"""Type of a column with only NULLs in a file without a schema: it is unknown."""

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
    """The kind of a column, and the parameters for reading its values.

    Args:
        kind: kind of the values.
        precision: total digits of a DECIMAL; 0 for others.
        scale: digits of a DECIMAL after the point; may be negative.
        element: type of the elements of an ARRAY.
        micros_per_unit: unit of Avro's timestamps and times, 1 or 1000.
        encoding: encoding of BYTES in texts, `hex` or `base64`; empty if unknown.
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
        """Return the type with decimals of any size, since another, declared type limits them."""
        if self.element is not None:
            return replace(self, element=self.element.without_bound())
        return replace(self, precision=_ANY_PRECISION) if self.kind is Kind.DECIMAL else self


Fields = tuple[tuple[str, FieldType], ...]
"""Name and type of each column of a payload, in its order."""
