"""Schemas of source tables, and the types of their columns in the lake."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.timestamps import OrderPlace

ARRAY: Final = "ARRAY"
MAX_DIMENSIONS: Final = 6
"""Maximum number of dimensions of an array, which is PostgreSQL's limit; other sources have one."""
PRIMARY_KEY: Final = "primary key"
"""Comment that marks the key columns of a table of the lake."""

_ARRAY_TEXT: Final = re.compile(r"ARRAY<(.*)>(?:\(.*\))?", re.IGNORECASE | re.DOTALL)
_CODE_TEXT: Final = re.compile(r"[A-Za-z0-9_]+")
_SPARK_TYPES: Final = {
    "BOOL": "boolean",
    "INT64": "bigint",
    "ENUM": "bigint",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "NUMERIC": "decimal(38,9)",
    "STRING": "string",
    "JSON": "string",
    "UUID": "string",
    "INTERVAL": "string",
    "BYTES": "binary",
    "PROTO": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "DATETIME": "timestamp_ntz",
}
DECIMAL: Final = "DECIMAL"
"""Code of a decimal with its precision and scale as annotation, such as `10,2`. Not a type of Spanner."""
NO_VALUES: Final = "NULL"
"""Code of a column that only had NULLs so far. Not a type of Spanner."""
MAX_INT64: Final = 2**63 - 1
MAX_PLAIN_INTEGER: Final = 2**53
"""Larger integers are strings in the JSON of events, because JSON readers may round them."""
_MAX_PRECISION: Final = 38
_DIGITS: Final = re.compile(r"(\d{1,4}),(\d{1,4})", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\(\d+,(\d+)\)")
PG_NUMERIC: Final = "PG_NUMERIC"
PG_JSONB: Final = "PG_JSONB"
NANOSECONDS: Final = "NANOSECONDS"
"""Annotation of the platform's own: the lake keeps the TIMESTAMP as text with nine digits of a second."""
# The type with one of these annotations has a greater range or precision than the type of its code.
_TEXT_ANNOTATIONS: Final = frozenset({PG_NUMERIC, PG_JSONB, NANOSECONDS})

_POSTGRESQL_TYPES: Final = {
    "boolean": ("BOOL", None),
    "bigint": ("INT64", None),
    "oid": ("INT64", "PG_OID"),
    "real": ("FLOAT32", None),
    "double precision": ("FLOAT64", None),
    "numeric": ("NUMERIC", PG_NUMERIC),
    "character varying": ("STRING", None),
    "text": ("STRING", None),
    "bytea": ("BYTES", None),
    "date": ("DATE", None),
    "timestamp with time zone": ("TIMESTAMP", None),
    "spanner.commit_timestamp": ("TIMESTAMP", None),
    "jsonb": ("JSON", PG_JSONB),
    "uuid": ("UUID", None),
    "interval": ("INTERVAL", None),
}
_POSTGRESQL_ARRAY: Final = re.compile(r"(.*?)\[\](?: .*)?", re.DOTALL)
_LENGTH: Final = re.compile(r"\(.*?\)")


@dataclass(frozen=True)
class ColumnType:
    """A Spanner type: its code, the type of its elements if it is an array, and its annotation."""

    code: str
    element: "ColumnType | None" = None
    annotation: str | None = None

    @classmethod
    def from_json(cls, type_json: Mapping[str, Any] | str, depth: int = 0) -> "ColumnType":
        """Parse a REST `Type` object, or its JSON text, as in `column_types`.

        Raises:
            ValueError, LookupError, TypeError, AttributeError, RecursionError: it is not a type.
        """
        fields: Mapping[str, Any] = json.loads(type_json) if isinstance(type_json, str) else type_json
        if depth > MAX_DIMENSIONS:
            raise ValueError(f"an array has more than {MAX_DIMENSIONS} dimensions")
        element = fields.get("array_element_type") or fields.get("arrayElementType")
        annotation = fields.get("type_annotation") or fields.get("typeAnnotation")
        if not isinstance(annotation, str | None):
            raise TypeError(f"a text was expected for the annotation of a type, not {annotation!r}")
        inner = cls.from_json(element, depth + 1) if element else None
        return cls(str(fields["code"]), inner, annotation)

    def to_json(self) -> str:
        """Return the JSON text that `from_json` reads."""
        return json.dumps(self.to_fields())

    def to_fields(self) -> dict[str, Any]:
        """Return the type as a REST `Type` object."""
        fields: dict[str, Any] = {"code": self.code}
        if self.element is not None:
            fields["array_element_type"] = self.element.to_fields()
        if self.annotation is not None:
            fields["type_annotation"] = self.annotation
        return fields

    @classmethod
    def from_spanner_type(cls, text: str) -> "ColumnType":
        """Parse a type of `information_schema`, such as `ARRAY<STRING(MAX)>`.

        The code of an unknown type is its leading word.
        """
        array = _ARRAY_TEXT.fullmatch(text.strip())
        if array is not None:
            return cls(ARRAY, cls.from_spanner_type(array.group(1)))
        code = _CODE_TEXT.match(text.strip())
        return cls(code.group().upper() if code else text)

    @classmethod
    def from_postgresql_type(cls, text: str) -> "ColumnType":
        """Parse a type of PostgreSQL's `information_schema`, such as `character varying(9)[]`.

        The code of an unknown type is its name.
        """
        array = _POSTGRESQL_ARRAY.fullmatch(text.strip())
        if array is not None:
            return cls(ARRAY, cls.from_postgresql_type(array.group(1)))
        name = _LENGTH.sub("", text).strip()
        code, annotation = _POSTGRESQL_TYPES.get(name.lower(), (name, None))
        return cls(code, annotation=annotation)

    @property
    def is_known(self) -> bool:
        """Whether this version knows the values of the type; values of unknown types are kept as text."""
        if self.code == ARRAY:
            return self.element is not None and self.element.is_known
        return self.code in _SPARK_TYPES or self.code in (DECIMAL, NO_VALUES)

    @property
    def text(self) -> str:
        """The type's name in messages."""
        if self.code == ARRAY and self.element is not None:
            return f"{ARRAY}<{self.element.text}>"
        if self.code == DECIMAL:
            return f"{DECIMAL}({self.annotation})"
        return self.annotation if self.annotation in (PG_NUMERIC, PG_JSONB) else self.code

    @property
    def scale(self) -> int | None:
        """Digits after the point of a type that is a decimal in the lake; None for all other types."""
        digits = _DECIMAL.fullmatch(spark_type(self))
        return int(digits.group(1)) if self.code == DECIMAL and digits else None

    @property
    def keeps_nanoseconds(self) -> bool:
        """Whether the lake keeps the timestamps of the column as text, by its setting."""
        return (self.element or self).annotation == NANOSECONDS

    def with_nanoseconds(self) -> "ColumnType":
        """Return the type with timestamps as text that keeps all nine digits of the second."""
        if self.code == ARRAY and self.element is not None:
            return replace(self, element=self.element.with_nanoseconds())
        return replace(self, annotation=NANOSECONDS) if self.code == "TIMESTAMP" else self


def spark_type(column_type: ColumnType) -> str:
    """Return the type in Spark's SQL; unknown types, and types without an equivalent, are strings."""
    if column_type.code == ARRAY and column_type.element is not None:
        return f"array<{spark_type(column_type.element)}>"
    if column_type.annotation in _TEXT_ANNOTATIONS:
        return "string"
    if column_type.code == DECIMAL:
        return _decimal(column_type.annotation)
    return _SPARK_TYPES.get(column_type.code, "string")


def _decimal(annotation: str | None) -> str:
    """Return the type of a decimal; a string if it has more digits than Spark allows, or declares none."""
    digits = _DIGITS.fullmatch(annotation or "")
    if digits is None:
        return "string"
    precision, scale = map(int, digits.groups())
    if not 0 < precision <= _MAX_PRECISION or scale > precision:
        return "string"
    return f"decimal({precision},{scale})"


@dataclass(frozen=True)
class ColumnLife:
    """Places in the order between which the source had a column, and its name there; None is unbounded.

    ``before`` is the version of the column whose values it took over, converted to its own type: with
    ``is_widened`` as the log encodes them, and otherwise as the source converts them.
    ``was_key`` marks a column that left the key: the changes of its life have it in their keys.
    """

    source_name: str
    since_inclusive: OrderPlace | None = None
    until_exclusive: OrderPlace | None = None
    before: "Column | None" = None
    was_key: bool = False
    is_widened: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a source table; in a table schema, a key column's `ordinal` is its position in the key.

    ``life`` is None if all given changes have the column under its own name.
    """

    name: str
    type: ColumnType
    is_primary_key: bool
    ordinal: int
    life: ColumnLife | None = None

    @property
    def source_name(self) -> str:
        """Name of the column in the source's records."""
        return self.name if self.life is None else self.life.source_name

    @property
    def lives(self) -> "tuple[ColumnLife, ...]":
        """Its life, and those of its former versions, from the newest one."""
        if self.life is None:
            return ()
        return (self.life, *(self.life.before.lives if self.life.before is not None else ()))

    @property
    def is_in_keys(self) -> bool:
        """Whether changes have the column in their keys instead of their values."""
        return self.is_primary_key or (self.life is not None and self.life.was_key)


@dataclass(frozen=True)
class TableSchema:
    """The watched columns of a source table: first the key columns, in the order of the primary key."""

    name: str
    columns: tuple[Column, ...]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the primary key, in its order."""
        return tuple(column for column in self.columns if column.is_primary_key)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns outside the primary key, in the order of the table."""
        return tuple(column for column in self.columns if not column.is_primary_key)

    @cached_value
    def is_evolving(self) -> bool:
        """Whether some of the given changes lack columns, or have columns of other types."""
        return any(column.life is not None for column in self.columns)

    @property
    def unknown_columns(self) -> tuple[Column, ...]:
        """The columns of unknown types, which are kept as text."""
        return tuple(column for column in self.columns if not column.type.is_known)
