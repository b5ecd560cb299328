"""Keys of rows in the form of the log."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.rows.row_values import read_value
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent, Unreadable
from cdc_platform.sources.json_codec import write_each

_KEY_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def header_key(plan: TablePlan, key: Mapping[str, Any] | None) -> str | None:
    """Return the key in a header; None if there is none."""
    return None if key is None else key_json(plan, key)


def key_json(plan: TablePlan, key: Mapping[str, Any]) -> str:
    """Return a key in the form of the log; see `key_texts`."""
    return key_texts(plan, [key])[0]


def key_texts(plan: TablePlan, keys: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return keys in the form of the log, with equal texts for keys that are equal in the lake's types.

    They must distinguish the same rows as the merge, which compares values.

    Raises:
        Unreadable: a column of a key is missing, null or not sent, or its type cannot hold the value.
    """
    names = [name for name, _ in plan.key_columns]
    columns = [_key_values(column, [key.get(name) for key in keys]) for name, column in plan.key_columns]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return list(map(_KEY_ENCODER.encode, rows)) if plan.may_have_float else write_each(rows)


def _key_values(column: ColumnPlan, values: Sequence[Any]) -> Sequence[Any]:
    if None in values:
        raise Unreadable(f"The key's column `{column.name}` is missing or null.")
    if not column.is_always_sent and any(map(column.detector.is_marker, values)):
        raise Unreadable(
            f"The key's column `{column.name}` was not sent: it has the marker of a large value, so the row "
            "is unknown. Choose key columns that are always sent, or run ALTER TABLE ... REPLICA IDENTITY "
            "FULL."
        )
    if column.scale is None and column.keeps(values):
        return values
    return [_key_value(column, value) for value in values]


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
