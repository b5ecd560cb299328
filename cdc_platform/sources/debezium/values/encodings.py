"""Encodings of the values of a column in events, and their types in the lake."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.schema.table_schema import ARRAY, DECIMAL, MOST_DIMENSIONS, PG_NUMERIC, ColumnType
from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    IntervalMode,
    TimeMode,
)
from cdc_platform.sources.debezium.values.postgres_types import STRING_ARRAY, TEXT, PostgresType

MILLIS: Final = 3
MICROS: Final = 6
NANOS: Final = 9
UNBOUNDED: Final = 2**31 - 1
"""Length of a `bit varying`: each value has its own."""
_MOST_BITS: Final = 83_886_080
"""Most bits that PostgreSQL's `bit(n)` can be declared with."""
_SHORT_BITS: Final = 152
"""Most bits that, with a header of 5 bytes, take at most 24 bytes: PostgreSQL moves only longer values out of
their row."""
_SOURCE_TYPE: Final = "__debezium.source.column.type"
_SOURCE_LENGTH: Final = "__debezium.source.column.length"
_SOURCE_SCALE: Final = "__debezium.source.column.scale"


class EncodingKind(StrEnum):
    """The JSON that a value arrives as."""

    BOOL = "bool"
    """A boolean."""
    INT = "int"
    """A number without a fraction."""
    FLOAT = "float"
    """A number, or one of the texts `NaN`, `Infinity`, `-Infinity`."""
    TEXT = "text"
    """A text that stays as it is."""
    BASE64 = "base64"
    """Octets in base64."""
    BASE64_URL = "base64_url"
    """Octets in base64, with the alphabet of addresses."""
    HEX = "hex"
    """Octets in hexadecimal digits."""
    UNSCALED = "unscaled"
    """A decimal without its point: big-endian two's complement in base64."""
    SCALED = "scaled"
    """An object of `scale` and an unscaled `value`."""
    DECIMAL_TEXT = "decimal_text"
    """A decimal as a text or a number."""
    BITS = "bits"
    """Bits from the last one on, in base64."""
    DAYS = "days"
    """Days since 1970."""
    ISO_DATE = "iso_date"
    """`2024-02-29Z`."""
    TIME = "time"
    """Units since midnight."""
    ISO_TIME = "iso_time"
    """`12:34:56.789012Z`, or with an offset."""
    LOCAL = "local"
    """Units since 1970, of a clock on the wall."""
    ISO_LOCAL = "iso_local"
    """`2024-02-29T07:04:56.789012Z`, of a clock on the wall."""
    ZONED = "zoned"
    """`2024-02-29T07:04:56.789012Z`."""
    DURATION = "duration"
    """Units."""
    JSON = "json"
    """An object that the lake keeps as the text of a JSON document."""
    LIST = "list"
    """An array of elements that have an encoding of their own."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of one column's values.

    Args:
        kind: the JSON that they arrive as.
        column_type: the type in the lake.
        source: name of the PostgreSQL type, as far as it is known.
        digits: scale of an unscaled decimal, digits of a second of times and durations, length of bits.
        element: encoding of the elements of an array.
        is_lenient: whether values are kept as texts, those too that the lake's own type could not say.
    """

    kind: EncodingKind
    column_type: ColumnType
    source: str
    digits: int = 0
    element: "Encoding | None" = None
    is_lenient: bool = False


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
_MAX_SCALE: Final = 1000
"""PostgreSQL's greatest; a negative one arrives as about 2046."""
_MAX_DIGITS: Final = 38


def block_encoding(field: Mapping[str, Any]) -> Encoding:
    """Return the encoding that a field of a schema block tells."""
    name, parameters = field.get("name") or "", field.get("parameters") or {}
    if field["type"] == "array":
        _check_dimensions(field)
        return _block_array(field)
    if name in _TOLD:
        return _TOLD[name](parameters)
    if name in _TIMES:
        kind, code, source, digits = _TIMES[name]
        return Encoding(kind, ColumnType(code), source, digits)
    if name in _TEXTS:
        code, source = _TEXTS[name]
        return Encoding(EncodingKind.TEXT, ColumnType(code), source)
    kind, code, source = _PLAIN.get(field["type"], _PLAIN["struct"])
    return Encoding(kind, ColumnType(code), "point" if name.endswith(".Point") else source)


def _check_dimensions(field: Mapping[str, Any]) -> None:
    """Refuse an array of more dimensions than PostgreSQL has, of which no table can be made."""
    dimensions, inner = 0, field
    while inner["type"] == "array":
        dimensions, inner = dimensions + 1, inner["items"]
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"an array of more than {MOST_DIMENSIONS} dimensions")


def _block_array(field: Mapping[str, Any]) -> Encoding:
    element = block_encoding(field["items"])
    # Addresses, ranges and others arrive as texts, too, but are unavailable in another shape.
    source = STRING_ARRAY if element.source == TEXT else f"{element.source}[]"
    return Encoding(EncodingKind.LIST, ColumnType(ARRAY, element.column_type), source, element=element)


def _block_decimal(parameters: Mapping[str, Any]) -> Encoding:
    scale = whole_number(parameters.get("scale") or 0)
    precision = max(whole_number(parameters.get("connect.decimal.precision") or _MAX_DIGITS), scale)
    source = "numeric" if precision > _MAX_DIGITS else "small numeric"
    return Encoding(EncodingKind.UNSCALED, _decimal_type(precision, scale), source, scale)


def _block_bits(parameters: Mapping[str, Any]) -> Encoding:
    length = whole_number(parameters.get("length") or UNBOUNDED)
    length = length if length <= _MOST_BITS else UNBOUNDED
    return _bits("bit" if length < UNBOUNDED else "varbit", length, length)


def _bits(source: str, limit: int, length: int) -> Encoding:
    """Return the encoding of bits: at most `limit`, and `length` in each value."""
    shape = "short bits" if limit <= _SHORT_BITS else source
    return Encoding(EncodingKind.BITS, ColumnType("STRING"), shape, length)


_VARIABLE: Final = Encoding(EncodingKind.SCALED, ColumnType("NUMERIC", annotation=PG_NUMERIC), "numeric")
_TOLD: Final[Mapping[str, Callable[[Mapping[str, Any]], Encoding]]] = {
    "org.apache.kafka.connect.data.Decimal": _block_decimal,
    "io.debezium.data.VariableScaleDecimal": lambda _parameters: _VARIABLE,
    "io.debezium.data.Bits": _block_bits,
}


def _decimal_type(precision: int, scale: int) -> ColumnType:
    if precision > _MAX_DIGITS or not 0 <= scale <= precision:
        return ColumnType("NUMERIC", annotation=PG_NUMERIC)
    return ColumnType(DECIMAL, annotation=f"{precision},{scale}")


def block_type(field: Mapping[str, Any]) -> PostgresType | None:
    """Return the type that the connector's `column.propagate.source.type` has put into a schema block."""
    parameters = field.get("parameters") or {}
    name = parameters.get(_SOURCE_TYPE)
    if not name:
        return None
    length, scale = whole_number(parameters.get(_SOURCE_LENGTH) or 0), parameters.get(_SOURCE_SCALE)
    # A numeric without a precision has the length 0.
    if str(name).lower().lstrip("_") not in _WITH_LENGTH or not 0 < length < UNBOUNDED:
        return PostgresType.parse(str(name))
    return PostgresType.parse(str(name), (length, *([whole_number(scale)] if scale is not None else [])))


_WITH_LENGTH: Final = frozenset({"numeric", "decimal", "bit", "varbit"})


def declared_encoding(declared: PostgresType, modes: ConnectorModes) -> Encoding:
    """Return the encoding of a declared type under the modes of the connector."""
    if declared.is_kept_as_text:
        plain = declared_encoding(replace(declared, is_kept_as_text=False), modes)
        return replace(plain, column_type=ColumnType("STRING"), is_lenient=True)
    if declared.element is not None:
        element = declared_encoding(declared.element, modes)
        column_type = ColumnType(ARRAY, element.column_type)
        return Encoding(EncodingKind.LIST, column_type, declared.name, element=element)
    read = _BY_MODE.get(declared.name)
    if read is not None:
        return read(declared, modes)
    kind, code = _DECLARED.get(declared.name, (EncodingKind.TEXT, "STRING"))
    return Encoding(kind, ColumnType(code), declared.name)


_DECLARED: Final[Mapping[str, tuple[EncodingKind, str]]] = {
    "boolean": (EncodingKind.BOOL, "BOOL"),
    "smallint": (EncodingKind.INT, "INT64"),
    "integer": (EncodingKind.INT, "INT64"),
    "bigint": (EncodingKind.INT, "INT64"),
    "oid": (EncodingKind.INT, "INT64"),
    "real": (EncodingKind.FLOAT, "FLOAT32"),
    "double precision": (EncodingKind.FLOAT, "FLOAT64"),
    "timestamptz": (EncodingKind.ZONED, "TIMESTAMP"),
    "uuid": (EncodingKind.TEXT, "UUID"),
    "json": (EncodingKind.TEXT, "JSON"),
    "jsonb": (EncodingKind.TEXT, "JSON"),
    "point": (EncodingKind.JSON, "JSON"),
    "geometry": (EncodingKind.JSON, "JSON"),
    "geography": (EncodingKind.JSON, "JSON"),
}


def _declared_numeric(declared: PostgresType, modes: ConnectorModes) -> Encoding:
    sizes = declared.sizes
    if declared.name == "money":
        sizes = (19, 2)
    precision, scale = (*sizes, 0)[:2] if sizes else (0, 0)
    column_type = (
        _decimal_type(max(precision, scale), scale) if sizes else ColumnType("NUMERIC", annotation=PG_NUMERIC)
    )
    source = "small numeric" if sizes and precision <= _MAX_DIGITS else "numeric"
    if modes.decimals is not DecimalMode.PRECISE:
        return Encoding(EncodingKind.DECIMAL_TEXT, column_type, source)
    return Encoding(EncodingKind.UNSCALED if sizes else EncodingKind.SCALED, column_type, source, scale)


def _declared_bytes(_declared: PostgresType, modes: ConnectorModes) -> Encoding:
    kind = {BinaryMode.HEX: EncodingKind.HEX, BinaryMode.BASE64_URL_SAFE: EncodingKind.BASE64_URL}
    return Encoding(kind.get(modes.binary, EncodingKind.BASE64), ColumnType("BYTES"), "bytea")


def _declared_date(_declared: PostgresType, modes: ConnectorModes) -> Encoding:
    kind = EncodingKind.ISO_DATE if modes.times is TimeMode.ISOSTRING else EncodingKind.DAYS
    return Encoding(kind, ColumnType("DATE"), "date")


def _declared_clock(declared: PostgresType, modes: ConnectorModes) -> Encoding:
    is_time = declared.name == "time"
    iso, plain, code = (
        (EncodingKind.ISO_TIME, EncodingKind.TIME, "STRING")
        if is_time
        else (EncodingKind.ISO_LOCAL, EncodingKind.LOCAL, "DATETIME")
    )
    if modes.times is TimeMode.ISOSTRING:
        return Encoding(iso, ColumnType(code), declared.name)
    return Encoding(plain, ColumnType(code), declared.name, _clock_digits(declared, modes.times))


def _clock_digits(declared: PostgresType, mode: TimeMode) -> int:
    if mode is TimeMode.CONNECT:
        return MILLIS
    if mode is TimeMode.NANOSECONDS:
        return NANOS
    is_fixed = mode is TimeMode.ADAPTIVE_TIME_MICROSECONDS and declared.name == "time"
    if is_fixed or mode is TimeMode.MICROSECONDS:
        return MICROS
    precision = declared.sizes[0] if declared.sizes else MICROS
    return MILLIS if precision <= MILLIS else MICROS


def _declared_interval(_declared: PostgresType, modes: ConnectorModes) -> Encoding:
    if modes.intervals is IntervalMode.STRING:
        return Encoding(EncodingKind.TEXT, ColumnType("INTERVAL"), "interval")
    # Microseconds in every mode of times, also in that of nanoseconds.
    return Encoding(EncodingKind.DURATION, ColumnType("INTERVAL"), "interval", MICROS)


def _declared_bits(declared: PostgresType, _modes: ConnectorModes) -> Encoding:
    is_fixed = declared.name == "bit"
    limit = declared.sizes[0] if declared.sizes else (1 if is_fixed else UNBOUNDED)
    if limit == 1:
        return Encoding(EncodingKind.BOOL, ColumnType("BOOL"), "boolean")
    return _bits(declared.name, limit, limit if is_fixed else UNBOUNDED)


def _declared_hstore(declared: PostgresType, modes: ConnectorModes) -> Encoding:
    kind = EncodingKind.JSON if modes.hstore is HstoreMode.MAP else EncodingKind.TEXT
    return Encoding(kind, ColumnType("JSON"), declared.name)


_BY_MODE: Final = {
    "numeric": _declared_numeric,
    "money": _declared_numeric,
    "bytea": _declared_bytes,
    "date": _declared_date,
    "time": _declared_clock,
    "timestamp": _declared_clock,
    "interval": _declared_interval,
    "bit": _declared_bits,
    "varbit": _declared_bits,
    "hstore": _declared_hstore,
}


def agreed_encoding(reported: Encoding, declared: Encoding) -> Encoding:
    """Return the encoding where a schema block tells one and a type is declared, too.

    The block knows the JSON, the declaration the type; a column that is kept as a text takes what its own
    type could not say, such as dates without end.
    """
    if reported.element is not None and declared.element is not None:
        element = agreed_encoding(reported.element, declared.element)
        return replace(declared, element=element, column_type=ColumnType(ARRAY, element.column_type))
    # A block has the same length for bits of a fixed and of a varying one.
    digits = declared.digits if declared.kind is EncodingKind.BITS else reported.digits
    if declared.is_lenient and reported.kind is not EncodingKind.TEXT:
        return replace(reported, column_type=declared.column_type, digits=digits, is_lenient=True)
    if reported.kind is EncodingKind.TEXT:
        return _texts_read_as(declared)
    if declared.column_type.code == "STRING" and declared.kind is EncodingKind.TEXT:
        return replace(reported, column_type=declared.column_type, is_lenient=True)
    if reported.kind is EncodingKind.FLOAT and declared.kind in _DECIMALS:
        return replace(declared, kind=EncodingKind.DECIMAL_TEXT)
    return replace(declared, kind=reported.kind, digits=digits, element=reported.element)


_DECIMALS: Final = (EncodingKind.UNSCALED, EncodingKind.SCALED, EncodingKind.DECIMAL_TEXT)


def _texts_read_as(declared: Encoding) -> Encoding:
    """Return how a plain text is read as the declared type."""
    if declared.kind in _DECIMALS:
        return replace(declared, kind=EncodingKind.DECIMAL_TEXT)
    if declared.kind is EncodingKind.DURATION or declared.source == "hstore":
        return replace(declared, kind=EncodingKind.TEXT)
    return declared


def scale_fault(encoding: Encoding) -> str | None:
    """Return why a column's decimals cannot be read: a negative scale arrives as a great one."""
    if encoding.kind is EncodingKind.UNSCALED and not 0 <= encoding.digits <= _MAX_SCALE:
        return (
            f"its scale is {encoding.digits}, which PostgreSQL does not have: it is likely negative. "
            "Set the connector's `decimal.handling.mode` to `string`, or ignore the column"
        )
    return scale_fault(encoding.element) if encoding.element is not None else None
