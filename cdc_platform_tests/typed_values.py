"""Values of change records as the Python values that a table of the lake gives back."""

import base64
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from cdc_platform.model.base.timestamps import from_rfc3339, to_datetime
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema
from cdc_platform_tests.support.history import JsonValue, Key, Row

_FROM_JSON: Final[Mapping[str, Callable[[Any], Any]]] = {
    "INT64": int,
    "ENUM": int,
    "FLOAT32": float,
    "FLOAT64": float,
    "NUMERIC": Decimal,
    "BYTES": base64.b64decode,
    "PROTO": base64.b64decode,
    "DATE": date.fromisoformat,
    "TIMESTAMP": lambda text: to_datetime(from_rfc3339(text)),
}


def typed_value(column_type: ColumnType, value: JsonValue) -> Any:
    """Return the Python value; types whose JSON form is a text or a flag already stay as they are."""
    if value is None:
        return None
    if isinstance(value, list):
        assert column_type.element is not None
        return [typed_value(column_type.element, part) for part in value]
    return _FROM_JSON.get(column_type.code, lambda same: same)(value)


def typed_row(table: TableSchema, row: Row) -> dict[str, Any]:
    """Return a row with Python values, all columns of the table in their order."""
    return {column.name: typed_value(column.type, row[column.name]) for column in table.columns}


def typed_rows(table: TableSchema, rows: Mapping[Key, Row]) -> list[dict[str, Any]]:
    """Return a table of the reference as rows with Python values, sorted by key."""
    names = [column.name for column in table.key_columns]
    whole = ({**dict(zip(names, key, strict=True)), **row} for key, row in rows.items())
    return sorted_by_key(table, (typed_row(table, row) for row in whole))


def sorted_by_key(table: TableSchema, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows, such as those of an Arrow table, sorted by key, so that tables can be compared."""
    names = [column.name for column in table.key_columns]
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))
