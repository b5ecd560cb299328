"""A small lake that applies changes to tables, to compare captures with the expected rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_platform.model.rows.resolution import RowChange, RowId, Values
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform_tests.sources.debezium.captures_read import Truth
from cdc_platform_tests.sources.debezium.postgres_texts import canonical
from cdc_platform_tests.support.reference.resolved_rows import resolve

Tables = dict[RowId, Values]


def row_change(event: SourceEvent) -> RowChange:
    """Return a change as the resolution takes it."""
    return RowChange(
        event.table,
        event.keys,
        event.mod_type,
        None if event.new_values is None else json.loads(event.new_values),
        event.unavailable_columns,
        event.previous_keys,
    )


def row_change_of(record: Mapping[str, Any]) -> RowChange:
    """Return the same of a raw record."""
    (mod,) = record["mods"]
    new_values = None if mod["new_values"] is None else json.loads(mod["new_values"])
    unavailable = tuple(record["event"]["unavailable_columns"] or ())
    return RowChange(
        record["table_name"],
        mod["keys"],
        ModType(record["mod_type"]),
        new_values,
        unavailable,
        record["event"]["previous_keys"],
        not unavailable,
    )


@dataclass
class Lake:
    """Tables, and the log of all changes, completed."""

    tables: Tables = field(default_factory=dict)
    log: list[RowChange] = field(default_factory=list)

    def take(self, changes: Sequence[RowChange]) -> None:
        """Take the changes of a cycle, in their order."""
        resolved = resolve(changes, self.tables, self.log)
        self.log += resolved
        for change in resolved:
            _apply(self.tables, change)

    @property
    def unresolved(self) -> list[RowChange]:
        """The changes of which some values are not known."""
        return [change for change in self.log if change.unavailable]


def apply_changes(events: Sequence[SourceEvent], batch: int) -> tuple[Tables, list[RowChange]]:
    """Return the rows after all changes, taken in batches, and what was unresolved on the way."""
    lake = Lake()
    for start in range(0, len(events), batch):
        lake.take([row_change(event) for event in events[start : start + batch]])
    return lake.tables, lake.unresolved


def _apply(tables: Tables, change: RowChange) -> None:
    if change.mod_type is ModType.TRUNCATE:
        for row_id in [row_id for row_id in tables if row_id[0] == change.table]:
            del tables[row_id]
    elif change.mod_type is ModType.DELETE:
        tables.pop(change.row_id, None)
    else:
        tables[change.row_id] = dict(change.new_values or {})


def rows_of(tables: Tables, table: str) -> list[dict[str, Any]]:
    """Return the rows of one table, in the order of their keys' texts."""
    rows = [{**json.loads(key), **values} for (name, key), values in tables.items() if name == table]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def true_rows(truth: Truth) -> list[dict[str, Any]]:
    """Return the rows that the database had, as the log would have them, without generated columns."""
    rows = [
        {
            name: canonical(truth.types[name], text)
            for name, text in row.items()
            if name not in truth.generated
        }
        for row in truth.rows
    ]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
