"""Keys of rows and values of columns in the form of the log."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.values.moments import ValueRefused
from cdc_platform.sources.debezium.wire.message_contents import Unreadable
from cdc_platform.sources.json_codec import write

_KEY_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def header_key(plan: TablePlan, key: Mapping[str, Any] | None) -> str | None:
    """Return the key in a header; None if there is none."""
    return None if key is None else key_json(plan, key)


def key_json(plan: TablePlan, key: Mapping[str, Any]) -> str:
    """Return a key in the form of the log: one text for all keys that are equal in the lake's types.

    It must distinguish the same rows as the merge, which compares values.

    Raises:
        Unreadable: a column of the key is missing, null or not sent, or its type cannot hold the value.
    """
    for name, column in plan.key_columns:
        if key.get(name) is None:
            raise Unreadable(f"The key's column `{name}` is missing or null.")
        if not column.is_always_sent and column.detector.is_marker(key[name]):
            raise Unreadable(
                f"The key's column `{name}` was not sent: it has the marker of a large value, so the row is "
                "unknown. Choose key columns that are always sent, or run ALTER TABLE ... REPLICA IDENTITY "
                "FULL."
            )
    values = {name: _key_value(column, key[name]) for name, column in plan.key_columns}
    return _KEY_ENCODER.encode(values) if plan.may_have_float else write(values)


def _key_value(column: ColumnPlan, value: Any) -> Any:
    key_value, scale = read_value(column, value), column.scale
    if isinstance(key_value, float):
        return key_value + 0.0  # there are two zeros, which are equal
    if scale is None:
        return key_value
    text = f"{Decimal(key_value):.{scale}f}"
    return text.removeprefix("-") if Decimal(text) == 0 else text


def read_value(column: ColumnPlan, value: Any) -> Any:
    """Return the value of a column in the form of the log.

    Raises:
        Unreadable: it is not what its type says, or cannot be kept in the lake.
    """
    try:
        return None if value is None else column.read(value)
    except ValueRefused as error:
        raise refused(column, error) from error


def refused(column: ColumnPlan, error: ValueRefused) -> Unreadable:
    """Return why an event cannot be used that has such a value."""
    return Unreadable(f"The value of the column `{column.name}` {error}.")
