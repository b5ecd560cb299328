"""Keys and values of rows in the form of the log."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from cdc_platform.sources.debezium.rows.findings import Findings
from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.values.moments import ValueRefused
from cdc_platform.sources.debezium.values.values import fit_as_they_are
from cdc_platform.sources.debezium.wire.message_contents import UPDATE, DataEvent, MessageUnusable
from cdc_platform.sources.json_codec import write

IsUnsent = Callable[[ColumnPlan, Any, Findings], bool]
"""Whether the value of a column was not sent; adds other facts about the value to the findings."""


def read_value(column: ColumnPlan, value: Any) -> Any:
    """Return the value of a column in the form of the log.

    Raises:
        MessageUnusable: the value does not match its type, or the lake cannot store it.
    """
    try:
        return None if value is None else column.read(value)
    except ValueRefused as error:
        raise MessageUnusable(f"The value of the column `{column.name}` {error}.") from error


def is_readable(column: ColumnPlan, value: Any) -> bool:
    """Return whether `read_value` returns a value."""
    try:
        read_value(column, value)
    except MessageUnusable:
        return False
    return True


def read_values(column: ColumnPlan, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column in the form of the log, as `read_value` does with each.

    Raises:
        MessageUnusable: a value does not match its type, or the lake cannot store it.
    """
    if fit_as_they_are(column.encoding, values):
        return values
    return [read_value(column, value) for value in values]


def values_json(plan: TablePlan, row: Mapping[str, Any]) -> str:
    """Return the values of an image before a change."""
    names = [name for name in row if name in plan.columns and name not in plan.keys]
    return write({name: read_value(plan.columns[name], row[name]) for name in names})


def sent_values_json(
    plan: TablePlan, row: Mapping[str, Any], findings: Findings, is_unsent: IsUnsent, *, keeps_null: bool
) -> str:
    """Return the values of a row after a change, and note facts about them.

    Args:
        plan: plan of the row's table.
        row: the event's values by column.
        findings: receives the columns that were not sent, and other facts about the values.
        is_unsent: called for each value that may not have been sent.
        keeps_null: whether a value that was not sent becomes null instead of being left out.

    Raises:
        MessageUnusable: a value does not match its type, or the lake cannot store it.
    """
    columns, values = plan.value_columns, dict[str, Any]()
    for name, value in row.items():
        column = columns.get(name)
        if column is None:
            continue
        if not column.is_always_sent and is_unsent(column, value, findings):
            findings.unavailable.append(name)
            if keeps_null:
                values[name] = None
            continue
        if column.has_default and column.may_be_null(value):
            findings.null_or_default.append(name)
        values[name] = read_value(column, value)
    return write(values)


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
            raise MessageUnusable(f"The key column `{name}` is missing or null.")
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
