"""The provenance of a row: its changes in order, and the change that set each column."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cdc_platform.model.stream.records import ChangeKind

Values: TypeAlias = Mapping[str, Any]
"""Columns and their values, as in the source's JSON."""


@dataclass(frozen=True)
class LoggedChange:
    """One change of a row as the log has it; ``record_id`` and ``mod_ordinal`` name the source's mod."""

    kind: ChangeKind
    commit_micros: int
    transaction_id: str
    partition_token: str
    record_id: str
    mod_ordinal: int
    cycle: int
    ordinal: int
    new_values: Values
    is_whole_row: bool
    ordering_key: str = ""
    source_micros: int | None = None
    previous_keys: str | None = None
    """The row's previous key if the change gave it another one."""
    left_out: frozenset[str] = frozenset()
    """Columns that an update keeps if it sets all others."""

    @property
    def made_micros(self) -> int:
        """When the source made the change, or the commit time if that is unknown."""
        return self.commit_micros if self.source_micros is None else self.source_micros


@dataclass(frozen=True)
class ColumnChange:
    """A column that a change named; ``before`` is None for NULL and for the first change after an insert."""

    column: str
    before: Any
    after: Any

    @property
    def has_changed(self) -> bool:
        """Whether the change altered the value."""
        return bool(self.before != self.after)


@dataclass(frozen=True)
class RowStep:
    """A change and its effect on the columns that it named."""

    number: int
    change: LoggedChange
    columns: tuple[ColumnChange, ...]


@dataclass(frozen=True)
class RowProvenance:
    """All steps of a row.

    ``values`` are the current values of the row, None if it is deleted; ``set_by`` maps each of its columns
    to the number of the step that set its value, 0 for the initial copy.
    """

    steps: tuple[RowStep, ...]
    values: Values | None
    set_by: Mapping[str, int]


def trace_provenance(
    changes: Sequence[LoggedChange], columns: Sequence[str], copied: Values | None = None
) -> RowProvenance:
    """Return the provenance of a row.

    Args:
        changes: all changes of one key, and the truncates of its table, in the order of the source.
        columns: the value columns of the table; a whole row sets those that it does not name to NULL.
        copied: the row before these changes; None if they begin with its insert.
    """
    steps: list[RowStep] = []
    row: dict[str, Any] | None = dict(copied) if copied is not None else None
    set_by: dict[str, int] = dict.fromkeys(row or {}, 0)
    for number, change in enumerate(changes, start=1):
        if change.kind in (ChangeKind.DELETE, ChangeKind.TRUNCATE):
            removals = tuple(ColumnChange(name, value, None) for name, value in (row or {}).items())
            steps.append(RowStep(number, change, removals))
            row, set_by = None, {}
            continue
        before = row if row is not None and change.kind is ChangeKind.UPDATE else {}
        set_by = set_by if before else {}
        column_changes = tuple(
            ColumnChange(name, before.get(name), change.new_values.get(name))
            for name in _named_columns(change, columns)
        )
        steps.append(RowStep(number, change, column_changes))
        set_by |= {
            column.column: number
            for column in column_changes
            if column.has_changed or column.column not in set_by
        }
        row = {**before, **{column.column: column.after for column in column_changes}}
    return RowProvenance(tuple(steps), row, set_by)


def _named_columns(change: LoggedChange, columns: Sequence[str]) -> list[str]:
    names = list(change.new_values)
    if not (change.is_whole_row or change.left_out):
        return names
    # The change also set columns that the table no longer has.
    all_names = [*columns, *(name for name in names if name not in columns)]
    return [name for name in all_names if name not in change.left_out]


def read_values(text: str | None) -> dict[str, Any]:
    """Return the columns of a JSON object of the log."""
    values = json.loads(text) if text else {}
    return values if isinstance(values, dict) else {}
