"""Encodings of a column's values in events, and their types in the lake."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cdc_platform.model.schema.table_schema import ARRAY, DECIMAL, PG_NUMERIC, ColumnType
from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    HstoreMode,
    IntervalMode,
    TimeMode,
)
from cdc_platform.sources.debezium.values.postgres_types import PostgresType
from cdc_platform.sources.debezium.values.unavailable import is_known

MILLIS: Final = 3
MICROS: Final = 6
NANOS: Final = 9
UNBOUNDED: Final = 2**31 - 1
"""Length of a `bit varying`, whose values have different lengths."""
_SHORT_BITS: Final = 152
"""Maximum bits that take at most 24 bytes with a header of 5 bytes; PostgreSQL moves only longer values out
of their row."""


class EncodingKind(StrEnum):
    """JSON form of a value."""

    BOOL = "bool"
    """A boolean."""
    INT = "int"
    """A number without a fraction."""
    FLOAT = "float"
    """A number, or one of the texts `NaN`, `Infinity`, `-Infinity`."""
    TEXT = "text"
    """A text that is kept unchanged."""
    BASE64 = "base64"
    """Octets in base64."""
    BASE64_URL = "base64_url"
    """Octets in base64 with the URL alphabet."""
    HEX = "hex"
    """Octets in hexadecimal digits."""
    UNSCALED = "unscaled"
    """A decimal without its point: big-endian two's complement in base64."""
    SCALED = "scaled"
    """An object of `scale` and an unscaled `value`."""
    DECIMAL_TEXT = "decimal_text"
    """A decimal as a text or a number."""
    BITS = "bits"
    """Bits in base64, last bit first."""
    DAYS = "days"
    """Days since 1970."""
    ISO_DATE = "iso_date"
    """`2024-02-29Z`."""
    TIME = "time"
    """Units since midnight."""
    ISO_TIME = "iso_time"
    """`12:34:56.789012Z`, or with an offset."""
    LOCAL = "local"
    """Units since 1970 of a local time, without a zone."""
    ISO_LOCAL = "iso_local"
    """`2024-02-29T07:04:56.789012Z`, a local time without a zone."""
    ZONED = "zoned"
    """`2024-02-29T07:04:56.789012Z`."""
    DURATION = "duration"
    """Units."""
    JSON = "json"
    """An object that the lake stores as JSON text."""
    LIST = "list"
    """An array of elements with their own encoding."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of one column's values.

    Args:
        kind: their JSON form.
        column_type: the type in the lake.
        source: name of the PostgreSQL type, as far as known.
        digits: scale of an unscaled decimal, digits of a second of times and durations, or length of bits.
        element: encoding of the elements of an array.
        is_lenient: whether values are kept as texts, even if the lake's own type cannot represent them.
    """

    kind: EncodingKind
    column_type: ColumnType
    source: str
    digits: int = 0
    element: "Encoding | None" = None
    is_lenient: bool = False


_MAX_SCALE: Final = 1000
"""PostgreSQL's maximum; a negative scale arrives as about 2046."""
MAX_DIGITS: Final = 38


def bits_encoding(source: str, limit: int, length: int) -> Encoding:
    """Return the encoding of bits: at most `limit`, and `length` in each value."""
    shape = "short bits" if limit <= _SHORT_BITS else source
    return Encoding(EncodingKind.BITS, ColumnType("STRING"), shape, length)


def decimal_type(precision: int, scale: int) -> ColumnType:
    """Return the type of decimals of a size; text if the lake has no such decimal."""
    if precision > MAX_DIGITS or not 0 <= scale <= precision:
        return ColumnType("NUMERIC", annotation=PG_NUMERIC)
    return ColumnType(DECIMAL, annotation=f"{precision},{scale}")


def declared_encoding(postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    """Return the encoding of a declared type under the modes of the connector."""
    if postgres_type.is_kept_as_text:
        plain = declared_encoding(replace(postgres_type, is_kept_as_text=False), modes)
        return replace(plain, column_type=ColumnType("STRING"), is_lenient=True)
    if postgres_type.element is not None:
        element = declared_encoding(postgres_type.element, modes)
        column_type = ColumnType(ARRAY, element.column_type)
        return Encoding(EncodingKind.LIST, column_type, postgres_type.name, element=element)
    encoding_of = _BY_MODE.get(postgres_type.name)
    if encoding_of is not None:
        return encoding_of(postgres_type, modes)
    kind, code = _DECLARED.get(postgres_type.name, (EncodingKind.TEXT, "STRING"))
    return Encoding(kind, ColumnType(code), postgres_type.name)


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


def _declared_numeric(postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    sizes = postgres_type.sizes
    if postgres_type.name == "money":
        sizes = (19, 2)
    precision, scale = (*sizes, 0)[:2] if sizes else (0, 0)
    column_type = (
        decimal_type(max(precision, scale), scale) if sizes else ColumnType("NUMERIC", annotation=PG_NUMERIC)
    )
    source = "small numeric" if sizes and precision <= MAX_DIGITS else "numeric"
    if modes.decimals is not DecimalMode.PRECISE:
        return Encoding(EncodingKind.DECIMAL_TEXT, column_type, source)
    return Encoding(EncodingKind.UNSCALED if sizes else EncodingKind.SCALED, column_type, source, scale)


def _declared_bytes(_postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    kind = {BinaryMode.HEX: EncodingKind.HEX, BinaryMode.BASE64_URL_SAFE: EncodingKind.BASE64_URL}
    return Encoding(kind.get(modes.binary, EncodingKind.BASE64), ColumnType("BYTES"), "bytea")


def _declared_date(_postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    kind = EncodingKind.ISO_DATE if modes.times is TimeMode.ISOSTRING else EncodingKind.DAYS
    return Encoding(kind, ColumnType("DATE"), "date")


def _declared_clock(postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    is_time = postgres_type.name == "time"
    iso, plain, code = (
        (EncodingKind.ISO_TIME, EncodingKind.TIME, "STRING")
        if is_time
        else (EncodingKind.ISO_LOCAL, EncodingKind.LOCAL, "DATETIME")
    )
    if modes.times is TimeMode.ISOSTRING:
        return Encoding(iso, ColumnType(code), postgres_type.name)
    return Encoding(plain, ColumnType(code), postgres_type.name, _clock_digits(postgres_type, modes.times))


def _clock_digits(postgres_type: PostgresType, mode: TimeMode) -> int:
    if mode is TimeMode.CONNECT:
        return MILLIS
    if mode is TimeMode.NANOSECONDS:
        return NANOS
    is_fixed = mode is TimeMode.ADAPTIVE_TIME_MICROSECONDS and postgres_type.name == "time"
    if is_fixed or mode is TimeMode.MICROSECONDS:
        return MICROS
    precision = postgres_type.sizes[0] if postgres_type.sizes else MICROS
    return MILLIS if precision <= MILLIS else MICROS


def _declared_interval(_postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    if modes.intervals is IntervalMode.STRING:
        return Encoding(EncodingKind.TEXT, ColumnType("INTERVAL"), "interval")
    # Microseconds in every time mode, even for nanoseconds.
    return Encoding(EncodingKind.DURATION, ColumnType("INTERVAL"), "interval", MICROS)


def _declared_bits(postgres_type: PostgresType, _modes: ConnectorModes) -> Encoding:
    is_fixed = postgres_type.name == "bit"
    limit = postgres_type.sizes[0] if postgres_type.sizes else (1 if is_fixed else UNBOUNDED)
    if limit == 1:
        return Encoding(EncodingKind.BOOL, ColumnType("BOOL"), "boolean")
    return bits_encoding(postgres_type.name, limit, limit if is_fixed else UNBOUNDED)


def _declared_hstore(postgres_type: PostgresType, modes: ConnectorModes) -> Encoding:
    kind = EncodingKind.JSON if modes.hstore is HstoreMode.MAP else EncodingKind.TEXT
    return Encoding(kind, ColumnType("JSON"), postgres_type.name)


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


def agreed_encoding(report: Encoding, setting: Encoding) -> Encoding:
    """Return the encoding of a column with both a schema block and a declared type.

    The block determines the JSON, the declaration the type, unless it is the name of a domain or another type
    of the user's. A column that is kept as text also accepts values that its own type cannot represent, such
    as infinite dates.
    """
    if not (setting.is_lenient or is_known(setting.source)):
        return report
    if report.element is not None and setting.element is not None:
        element = agreed_encoding(report.element, setting.element)
        return replace(setting, element=element, column_type=ColumnType(ARRAY, element.column_type))
    # A block has the same length for `bit` and `bit varying`.
    digits = setting.digits if setting.kind is EncodingKind.BITS else report.digits
    if report.kind is EncodingKind.TEXT:
        return _texts_read_as(setting)
    if setting.is_lenient or (setting.column_type.code == "STRING" and setting.kind is EncodingKind.TEXT):
        return replace(report, column_type=setting.column_type, digits=digits, is_lenient=True)
    if report.kind is EncodingKind.FLOAT and setting.kind in _DECIMALS:
        return replace(setting, kind=EncodingKind.DECIMAL_TEXT)
    return replace(setting, kind=report.kind, digits=digits, element=report.element)


_DECIMALS: Final = (EncodingKind.UNSCALED, EncodingKind.SCALED, EncodingKind.DECIMAL_TEXT)


def _texts_read_as(declaration: Encoding) -> Encoding:
    """Return the encoding that reads a plain text as the declared type."""
    if declaration.kind in _DECIMALS:
        return replace(declaration, kind=EncodingKind.DECIMAL_TEXT)
    if declaration.kind is EncodingKind.DURATION or declaration.source == "hstore":
        return replace(declaration, kind=EncodingKind.TEXT)
    return declaration


def scale_fault(encoding: Encoding) -> str | None:
    """Return the reason why a column's decimals cannot be read: a negative scale arrives as a large one."""
    if encoding.kind is EncodingKind.UNSCALED and not 0 <= encoding.digits <= _MAX_SCALE:
        return (
            f"its scale is {encoding.digits}, which PostgreSQL does not have: it is likely negative. "
            "Set the connector's `decimal.handling.mode` to `string`, or ignore the column"
        )
    return scale_fault(encoding.element) if encoding.element is not None else None
