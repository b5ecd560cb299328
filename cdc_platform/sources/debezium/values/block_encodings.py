"""Encodings of values, from the schema blocks of events."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.schema.table_schema import ARRAY, MAX_DIMENSIONS, PG_NUMERIC, ColumnType
from cdc_platform.sources.debezium.values.encodings import (
    MAX_DIGITS,
    MICROS,
    MILLIS,
    NANOS,
    UNBOUNDED,
    Encoding,
    EncodingKind,
    bits_encoding,
    decimal_type,
)
from cdc_platform.sources.debezium.values.postgres_types import STRING_ARRAY, TEXT, PostgresType

_MAX_BITS: Final = 83_886_080
"""Maximum bits that PostgreSQL's `bit(n)` can declare."""
_SOURCE_TYPE: Final = "__debezium.source.column.type"
_SOURCE_LENGTH: Final = "__debezium.source.column.length"
_SOURCE_SCALE: Final = "__debezium.source.column.scale"
_PLAIN: Final[Mapping[str, tuple[EncodingKind, str, str]]] = {
    # primitive type of Kafka Connect: kind, type in the lake, type of PostgreSQL
    "boolean": (EncodingKind.BOOL, "BOOL", "boolean"),
    "int8": (EncodingKind.INT, "INT64", "smallint"),
    "int16": (EncodingKind.INT, "INT64", "smallint"),
    "int32": (EncodingKind.INT, "INT64", "integer"),
    "int64": (EncodingKind.INT, "INT64", "bigint"),
    "float": (EncodingKind.FLOAT, "FLOAT32", "real"),
    "float32": (EncodingKind.FLOAT, "FLOAT32", "real"),
    "double": (EncodingKind.FLOAT, "FLOAT64", "double precision"),
    "float64": (EncodingKind.FLOAT, "FLOAT64", "double precision"),
    "string": (EncodingKind.TEXT, "STRING", TEXT),
    "bytes": (EncodingKind.BASE64, "BYTES", "bytea"),
    "struct": (EncodingKind.JSON, "JSON", "struct"),
    "map": (EncodingKind.JSON, "JSON", "hstore"),
}
_TIMES: Final = {
    # logical name: kind, type in the lake, type of PostgreSQL, digits
    "io.debezium.time.Date": (EncodingKind.DAYS, "DATE", "date", 0),
    "org.apache.kafka.connect.data.Date": (EncodingKind.DAYS, "DATE", "date", 0),
    "io.debezium.time.IsoDate": (EncodingKind.ISO_DATE, "DATE", "date", 0),
    "io.debezium.time.Time": (EncodingKind.TIME, "STRING", "time", MILLIS),
    "org.apache.kafka.connect.data.Time": (EncodingKind.TIME, "STRING", "time", MILLIS),
    "io.debezium.time.MicroTime": (EncodingKind.TIME, "STRING", "time", MICROS),
    "io.debezium.time.NanoTime": (EncodingKind.TIME, "STRING", "time", NANOS),
    "io.debezium.time.IsoTime": (EncodingKind.ISO_TIME, "STRING", "time", 0),
    "io.debezium.time.ZonedTime": (EncodingKind.TEXT, "STRING", "timetz", 0),
    "io.debezium.time.Timestamp": (EncodingKind.LOCAL, "DATETIME", "timestamp", MILLIS),
    "org.apache.kafka.connect.data.Timestamp": (EncodingKind.LOCAL, "DATETIME", "timestamp", MILLIS),
    "io.debezium.time.MicroTimestamp": (EncodingKind.LOCAL, "DATETIME", "timestamp", MICROS),
    "io.debezium.time.NanoTimestamp": (EncodingKind.LOCAL, "DATETIME", "timestamp", NANOS),
    "io.debezium.time.IsoTimestamp": (EncodingKind.ISO_LOCAL, "DATETIME", "timestamp", 0),
    "io.debezium.time.ZonedTimestamp": (EncodingKind.ZONED, "TIMESTAMP", "timestamptz", 0),
    "io.debezium.time.MicroDuration": (EncodingKind.DURATION, "INTERVAL", "interval", MICROS),
    "io.debezium.time.NanoDuration": (EncodingKind.DURATION, "INTERVAL", "interval", NANOS),
    "io.debezium.time.Interval": (EncodingKind.TEXT, "INTERVAL", "interval", 0),
}
_TEXTS: Final = {
    "io.debezium.data.Json": ("JSON", "json"),
    "io.debezium.data.Uuid": ("UUID", "uuid"),
    "io.debezium.data.Xml": ("STRING", "xml"),
    "io.debezium.data.Ltree": ("STRING", "ltree"),
    "io.debezium.data.Tsvector": ("STRING", "tsvector"),
    "io.debezium.data.Enum": ("STRING", "enum"),
    "io.debezium.data.EnumSet": ("STRING", "enum"),
}


def block_encoding(field: Mapping[str, Any]) -> Encoding:
    """Return the encoding of a field of a schema block."""
    name, parameters = field.get("name") or "", field.get("parameters") or {}
    if field["type"] == "array":
        _check_dimensions(field)
        return _block_array(field)
    if name in _PARAMETRISED:
        return _PARAMETRISED[name](parameters)
    if name in _TIMES:
        kind, code, source, digits = _TIMES[name]
        return Encoding(kind, ColumnType(code), source, digits)
    if name in _TEXTS:
        code, source = _TEXTS[name]
        return Encoding(EncodingKind.TEXT, ColumnType(code), source)
    kind, code, source = _PLAIN.get(field["type"], _PLAIN["struct"])
    return Encoding(kind, ColumnType(code), "point" if name.endswith(".Point") else source)


def _check_dimensions(field: Mapping[str, Any]) -> None:
    """Reject an array with more dimensions than PostgreSQL allows, from which no table can be built."""
    dimensions, inner = 0, field
    while inner["type"] == "array":
        dimensions, inner = dimensions + 1, inner["items"]
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"an array of more than {MAX_DIMENSIONS} dimensions")


def _block_array(field: Mapping[str, Any]) -> Encoding:
    element = block_encoding(field["items"])
    # Addresses, ranges and other types also arrive as texts, but their unavailable values have another shape.
    source = STRING_ARRAY if element.source == TEXT else f"{element.source}[]"
    return Encoding(EncodingKind.LIST, ColumnType(ARRAY, element.column_type), source, element=element)


def _block_decimal(parameters: Mapping[str, Any]) -> Encoding:
    scale = whole_number(parameters.get("scale") or 0)
    precision = max(whole_number(parameters.get("connect.decimal.precision") or MAX_DIGITS), scale)
    source = "numeric" if precision > MAX_DIGITS else "small numeric"
    return Encoding(EncodingKind.UNSCALED, decimal_type(precision, scale), source, scale)


def _block_bits(parameters: Mapping[str, Any]) -> Encoding:
    length = whole_number(parameters.get("length") or UNBOUNDED)
    length = length if length <= _MAX_BITS else UNBOUNDED
    return bits_encoding("bit" if length < UNBOUNDED else "varbit", length, length)


_VARIABLE: Final = Encoding(EncodingKind.SCALED, ColumnType("NUMERIC", annotation=PG_NUMERIC), "numeric")
_PARAMETRISED: Final[Mapping[str, Callable[[Mapping[str, Any]], Encoding]]] = {
    "org.apache.kafka.connect.data.Decimal": _block_decimal,
    "io.debezium.data.VariableScaleDecimal": lambda _parameters: _VARIABLE,
    "io.debezium.data.Bits": _block_bits,
}


def block_type(field: Mapping[str, Any]) -> PostgresType | None:
    """Return the type that the connector's `column.propagate.source.type` has added to a schema block."""
    parameters = field.get("parameters") or {}
    name = parameters.get(_SOURCE_TYPE)
    if not name:
        return None
    sizes = _propagated_sizes(str(name).lower().lstrip("_"), parameters)
    return PostgresType.propagated(str(name), sizes, is_array=field["type"] == "array")


def _propagated_sizes(name: str, parameters: Mapping[str, Any]) -> tuple[int, ...]:
    """Return precision and scale, or length; for times the digits of a second, which are the scale."""
    length, scale = whole_number(parameters.get(_SOURCE_LENGTH) or 0), parameters.get(_SOURCE_SCALE)
    scales = (whole_number(scale),) if scale is not None else ()
    if name in _WITH_DIGITS:
        return scales
    # A numeric without a precision has the length 0.
    return (length, *scales) if name in _WITH_LENGTH and 0 < length < UNBOUNDED else ()


_WITH_LENGTH: Final = frozenset({"numeric", "decimal", "bit", "varbit"})
_WITH_DIGITS: Final = frozenset({"time", "timestamp"})
