"""Keys of rows in the form of the log."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.rows.row_values import read_value
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent, MessageUnusable
from cdc_platform.sources.json_codec import write

_KEY_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def header_key(plan: TablePlan, key: Mapping[str, Any] | None) -> str | None:
    """Return the key in a header; None if there is none."""
    return None if key is None else key_json(plan, key)


def key_json(plan: TablePlan, key: Mapping[str, Any]) -> str:
    """Return a key in the form of the log, with equal text for keys that are equal in the lake's types.

    It must distinguish the same rows as the merge, which compares values.

    Raises:
        MessageUnusable: a column of the key is missing, null or not sent, or its type cannot hold the value.
    """
    for name, column in plan.key_columns:
        if key.get(name) is None:
            raise MessageUnusable(f"The key's column `{name}` is missing or null.")
        if not column.is_always_sent and column.detector.is_marker(key[name]):
            raise MessageUnusable(
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


def old_key_of(event: DataEvent, plan: TablePlan, *, is_full: bool) -> Mapping[str, Any] | None:
    """Return the key of a row before an update, for keys that are not the database's own.

    The connector sends an update of the database's key as a delete and an insert. Only the row before shows
    an update of key columns that `keys` or `message.key.columns` chose.
    """
    if event.op is not UPDATE or event.before is None or event.is_flat or not event.key:
        return None
    old_key = {name: event.before.get(name) for name in plan.keys}
    is_known = all(
        value is not None if is_full else plan.columns[name].has_content(value)
        for name, value in old_key.items()
    )
    return old_key if is_known and old_key != dict(event.key) else None
