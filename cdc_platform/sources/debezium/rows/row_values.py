"""Values of rows in the form of the log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cdc_platform.sources.debezium.rows.findings import NOTHING, Findings
from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.values.moments import ValueRefused
from cdc_platform.sources.debezium.values.unavailable import VALUE
from cdc_platform.sources.debezium.wire.message_contents import Unreadable
from cdc_platform.sources.json_codec import write, write_each

IsUnsent = Callable[[ColumnPlan, Any, Findings], bool]
"""Whether the value of a column was not sent; adds other facts about the value to the findings."""


def read_value(column: ColumnPlan, value: Any) -> Any:
    """Return the value of a column in the form of the log.

    Raises:
        Unreadable: the value does not match its type, or the lake cannot store it.
    """
    try:
        return None if value is None else column.read(value)
    except ValueRefused as error:
        raise Unreadable(f"The value of the column `{column.name}` {error}.") from error


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
        Unreadable: a value does not match its type, or the lake cannot store it.
    """
    columns, values = plan.others, dict[str, Any]()
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


def sent_values_texts(
    plan: TablePlan, rows: Sequence[Mapping[str, Any]], is_unsent: IsUnsent, *, keeps_null: bool
) -> tuple[list[str], list[Findings]]:
    """Return the same for rows with equal names in equal order, with the findings of each.

    Only the rows about whose values there is something to note are read one by one.
    """
    names = list(rows[0])
    noted: dict[int, str] = {}
    findings = [NOTHING] * len(rows)
    for number in sorted(set(_doubtful(plan, _columns(names, rows)))):
        findings[number] = found = Findings()
        noted[number] = sent_values_json(plan, rows[number], found, is_unsent, keeps_null=keeps_null)
    plain = [row for number, row in enumerate(rows) if number not in noted] if noted else rows
    texts = _texts(plan, _columns(names, plain))
    for number, text in noted.items():
        texts.insert(number, text)
    return texts, findings


def _columns(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
    return dict(zip(names, zip(*(row.values() for row in rows), strict=True), strict=False))


def _doubtful(plan: TablePlan, columns: Mapping[str, Sequence[Any]]) -> Iterator[int]:
    """Yield the numbers of rows with a value that may not have been sent, or may be a default."""
    for name, column in plan.others.items():
        values = columns.get(name, ())
        if not column.is_always_sent:
            has_policy, judge = column.detector.null_policy is not None, column.detector.judge
            for number, value in enumerate(values):
                if judge(value) is not VALUE or (has_policy and value is None):
                    yield number
        if column.has_default:
            yield from (number for number, value in enumerate(values) if column.may_be_null(value))


def _texts(plan: TablePlan, columns: Mapping[str, Sequence[Any]]) -> list[str]:
    read = {
        name: _read_values(plan.others[name], values)
        for name, values in columns.items()
        if name in plan.others
    }
    names = list(read)
    return write_each([dict(zip(names, row, strict=True)) for row in zip(*read.values(), strict=True)])


def _read_values(column: ColumnPlan, values: Sequence[Any]) -> Sequence[Any]:
    present = [value for value in values if value is not None] if None in values else values
    return values if column.keeps(present) else [read_value(column, value) for value in values]
