"""Values of columns in the source's form: in the JSON of mods, and in the rows of a query."""

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from cdc_platform.model.schema.table_schema import ARRAY, ColumnType
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform.simulator.wire.wire import Plain, plain_value, string_value

Cell: TypeAlias = Any
"""A value in a row: int, float, bool, text, bytes, None, or a tuple of such for an array."""

BOOL: Final = ColumnType("BOOL")
INT64: Final = ColumnType("INT64")
FLOAT64: Final = ColumnType("FLOAT64")
STRING: Final = ColumnType("STRING")
BYTES: Final = ColumnType("BYTES")
TIMESTAMP: Final = ColumnType("TIMESTAMP")
JSON: Final = ColumnType("JSON")

PROTO_NAMES: Final = {"PROTO": "bank.Card", "ENUM": "bank.Tier"}
"""Full names of the messages in columns of these types."""
UNKNOWN: Final = "HOLOGRAM"
"""A type that Spanner may have in the future, and that no reader knows."""

_GOOGLESQL_NAMES: Final = {
    "STRING": "STRING(MAX)",
    "BYTES": "BYTES(MAX)",
    **{code: f"{code}<{name}>" for code, name in PROTO_NAMES.items()},
}
_POSTGRESQL_NAMES: Final = {
    "BOOL": "boolean",
    "INT64": "bigint",
    "FLOAT32": "real",
    "FLOAT64": "double precision",
    "NUMERIC": "numeric",
    "STRING": "character varying",
    "BYTES": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "JSON": "jsonb",
    "UUID": "uuid",
    "INTERVAL": "interval",
    UNKNOWN: "hologram",
}
_ANNOTATIONS: Final = {"NUMERIC": "PG_NUMERIC", "JSON": "PG_JSONB"}
_ANNOTATION_CODES: Final = {"PG_NUMERIC": 2, "PG_JSONB": 3}
_UNKNOWN_CODE: Final = 99
"""Code of the unknown type in messages, which no version of the API has."""
_FLOAT32: Final = struct.Struct("<f")


def in_dialect(column_type: ColumnType, dialect: Dialect) -> ColumnType:
    """Return a type of GoogleSQL in the form of the dialect."""
    if dialect is Dialect.GOOGLESQL:
        return column_type
    element = None if column_type.element is None else in_dialect(column_type.element, dialect)
    return ColumnType(column_type.code, element, _ANNOTATIONS.get(column_type.code))


def spanner_type(column_type: ColumnType, dialect: Dialect) -> str:
    """Return the type in the form of `information_schema`."""
    if column_type.element is not None:
        element = spanner_type(column_type.element, dialect)
        return f"ARRAY<{element}>" if dialect is Dialect.GOOGLESQL else f"{element}[]"
    if dialect is Dialect.GOOGLESQL:
        return _GOOGLESQL_NAMES.get(column_type.code, column_type.code)
    return _POSTGRESQL_NAMES[column_type.code]


def row_type(columns: Sequence[tuple[str, ColumnType]]) -> bytes:
    """Return the metadata of a result with these columns, which may share a name."""
    from google.cloud.spanner_v1.types import ResultSetMetadata, StructType

    fields = [StructType.Field(name=name, type_=to_proto(of_type)) for name, of_type in columns]
    return bytes(ResultSetMetadata.serialize(ResultSetMetadata(row_type=StructType(fields=fields))))


def to_proto(column_type: ColumnType) -> Any:
    """Return the type as a message of Spanner's API."""
    from google.cloud.spanner_v1.types import Type, TypeAnnotationCode, TypeCode

    annotation = TypeAnnotationCode(_ANNOTATION_CODES.get(column_type.annotation or "", 0))
    code = _UNKNOWN_CODE if column_type.code == UNKNOWN else TypeCode[column_type.code]
    name = PROTO_NAMES.get(column_type.code, "")
    proto = Type(code=code, type_annotation=annotation, proto_type_fqn=name)
    if column_type.element is not None:
        proto.array_element_type = to_proto(column_type.element)
    return proto


def type_fields(column_type: ColumnType) -> dict[str, Any]:
    """Return the type in the form of change records."""
    fields = column_type.to_fields()
    if column_type.element is not None:
        fields["array_element_type"] = type_fields(column_type.element)
    name = PROTO_NAMES.get(column_type.code)
    return fields if name is None else {**fields, "proto_type_fqn": name}


def as_json(column_type: ColumnType, cell: Cell) -> Plain:
    """Return a value in the form of JSON."""
    return None if cell is None else _converter(column_type)(cell)


@lru_cache(maxsize=1024)
def json_writer(column_type: ColumnType) -> Callable[[Cell], str]:
    """Return a function that writes a value of the type as JSON text."""
    convert = _converter(column_type)

    def write(cell: Cell) -> str:
        return "null" if cell is None else json_text(convert(cell))

    return write


@lru_cache(maxsize=1024)
def value_writer(column_type: ColumnType) -> Callable[[Cell], bytes]:
    """Return a function that writes a value of the type as a protobuf value in bytes."""
    convert = _converter(column_type)

    def write(cell: Cell) -> bytes:
        return plain_value(None if cell is None else convert(cell))

    def write_text(cell: Cell) -> bytes:
        return string_value(cell) if type(cell) is str else write(cell)

    return write_text if column_type.code == "STRING" else write


json_text: Final[Callable[[Plain], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Returns a plain value as JSON text."""


def _converter(column_type: ColumnType) -> Callable[[Cell], Plain]:
    if column_type.code == ARRAY and column_type.element is not None:
        convert = _converter(column_type.element)
        return lambda cells: [None if cell is None else convert(cell) for cell in cells]
    return _CONVERTERS.get(column_type.code, str)


def _float64(cell: float) -> Plain:
    if math.isfinite(cell):
        return cell
    return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"


def _float32(cell: float) -> Plain:
    # Spanner sends the double nearest to the stored value.
    return _float64(_FLOAT32.unpack(_FLOAT32.pack(cell))[0])


def _text(cell: str | bytes) -> str:
    return cell if isinstance(cell, str) else cell.decode()


def _base64(cell: str | bytes) -> str:
    return b64encode(cell.encode() if isinstance(cell, str) else cell).decode()


# A column that changed between STRING and BYTES still has earlier values in their original form.
_CONVERTERS: Final[dict[str, Callable[[Cell], Plain]]] = {
    "BOOL": bool,
    "FLOAT32": _float32,
    "FLOAT64": _float64,
    "STRING": _text,
    "BYTES": _base64,
    "PROTO": _base64,
    UNKNOWN: lambda cell: cell,
}
