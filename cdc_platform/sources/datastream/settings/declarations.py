"""Types of columns that users declare, because the source's own are missing or not the wanted ones."""

import re
from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.errors import SettingError
from cdc_platform.sources.datastream.values.types import FieldType, Kind

Declarations = Mapping[str, Mapping[str, FieldType]]
"""Types by the source's table, such as `public.orders`, and by column."""

SETTING: Final = "source.columns"
ALL_TABLES: Final = "*"
"""Entry of a setting that stands for all tables that it does not name."""
_MAX_DIGITS: Final = 10_000
_DECIMAL: Final = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
_BYTES: Final = re.compile(r"BYTES\s*\(\s*(HEX|BASE64)\s*\)")
_ARRAY: Final = re.compile(r"ARRAY\s*<(.*)>")
_WORDS: Final = {
    "BOOL": FieldType(Kind.BOOLEAN),
    "INT64": FieldType(Kind.LONG),
    "FLOAT32": FieldType(Kind.FLOAT),
    "FLOAT64": FieldType(Kind.DOUBLE),
    "NUMERIC": FieldType(Kind.DECIMAL, 38, 9),
    "NUMBER": FieldType(Kind.NUMBER),
    "STRING": FieldType(Kind.STRING),
    "JSON": FieldType(Kind.JSON),
    "BYTES": FieldType(Kind.BYTES),
    "DATE": FieldType(Kind.DATE),
    "DATETIME": FieldType(Kind.DATETIME),
    "TIMESTAMP": FieldType(Kind.TIMESTAMP),
    "TIME": FieldType(Kind.TIME),
    "INTERVAL": FieldType(Kind.INTERVAL),
    "TIME_INTERVAL": FieldType(Kind.TIME_INTERVAL),
}
_TYPE_NAMES: Final = (
    "BOOL, INT64, FLOAT32, FLOAT64, NUMERIC, NUMBER, DECIMAL(p,s), STRING, JSON, BYTES, BYTES(hex), "
    "BYTES(base64), DATE, DATETIME, TIMESTAMP, TIME, INTERVAL, TIME_INTERVAL or ARRAY<one of these>"
)


def declarations(tables: Mapping[str, Mapping[str, str]], setting: str = SETTING) -> Declarations:
    """Return the declared types of the texts of a setting.

    Raises:
        SettingError: a text is not a type.
    """
    return {
        table: {
            column: declared_type(text, f"{setting}.{table}.{column}") for column, text in columns.items()
        }
        for table, columns in tables.items()
    }


def declared_type(text: str, setting: str = SETTING) -> FieldType:
    """Return the type of a text such as `DECIMAL(38,10)`.

    Raises:
        SettingError: the text is not a type.
    """
    word = text.strip().upper()
    if not word:
        raise SettingError(setting, f"is empty; write the column's type, {_TYPE_NAMES}")
    if word in _WORDS:
        return _WORDS[word]
    if match := _DECIMAL.fullmatch(word):
        return _decimal(int(match[1]), int(match[2] or 0), setting)
    if match := _BYTES.fullmatch(word):
        return FieldType(Kind.BYTES, encoding=match[1].lower())
    if match := _ARRAY.fullmatch(word):
        element = declared_type(match[1], setting)
        if element.kind is not Kind.ARRAY:
            return FieldType(Kind.ARRAY, element=element)
    raise SettingError(setting, f"is not a type: {text!r}; a type is {_TYPE_NAMES}")


def _decimal(precision: int, scale: int, setting: str) -> FieldType:
    if not 0 < precision <= _MAX_DIGITS or scale > precision:
        raise SettingError(setting, f"has {scale} digits after the point of {precision} in all")
    return FieldType(Kind.DECIMAL, precision, scale)


def names_of_table(object_name: str, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of an event's table in settings, the source's own first."""
    outer = part_text(metadata.get("schema")) or part_text(metadata.get("database"))
    inner = _inner_name(metadata)
    own = [f"{outer}.{inner}" if outer else inner] if inner else []
    return (*own, object_name)


def full_name(object_name: str, metadata: Mapping[str, Any]) -> str:
    """Return the unique name of an event's table at the source: database, schema and table."""
    return ".".join(name_parts(metadata)) or object_name


def name_parts(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the database, the schema and the name of an event's table, without those that are missing."""
    parts = (database_name(metadata), part_text(metadata.get("schema")), _inner_name(metadata))
    return tuple(filter(None, parts))


def database_name(metadata: Mapping[str, Any]) -> str:
    """Return the database of an event's table; for an object of Salesforce, the organisation's domain.

    It is empty if the metadata does not state it.
    """
    return part_text(metadata.get("database")) or part_text(metadata.get("domain"))


def part_text(value: object) -> str:
    """Return a part of a table's name; empty for a value that is none.

    SQL Server's database may be a number, and its schema an array of one.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def event_identity(event_id: str, object_name: str, metadata: Mapping[str, Any]) -> str:
    """Return the identity of an event; it includes the table, because two tables may share a uuid."""
    return f"{full_name(object_name, metadata)}/{event_id}"


def _inner_name(metadata: Mapping[str, Any]) -> str:
    """Return the name of an event's table within its schema or database."""
    texts = (part_text(metadata.get(name)) for name in ("table", "collection", "object_name"))
    return next(filter(None, texts), "")


def check_column_lists(setting: str, lists: Mapping[str, tuple[str, ...]]) -> None:
    """Reject lists with other entries than distinct column names."""
    for table, columns in lists.items():
        if not isinstance(columns, tuple) or not all(columns) or len(set(columns)) != max(len(columns), 1):
            raise SettingError(
                f"{setting}.{table}", f"must be a list of different column names, but is: {columns!r}"
            )
