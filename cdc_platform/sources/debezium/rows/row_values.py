"""Values of rows in the form of the log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdc_platform.sources.debezium.rows.findings import Findings
from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.values.moments import ValueRefused
from cdc_platform.sources.debezium.values.values import fit_as_they_are
from cdc_platform.sources.debezium.wire.message_contents import MessageUnusable
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
