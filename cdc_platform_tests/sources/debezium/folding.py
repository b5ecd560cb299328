"""A lake in a few lines: what changes make of tables, so that captures can be held against their truth."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_platform.model.events import SourceEvent
from cdc_platform.model.records import ModType
from cdc_platform.model.resolution import RowChange, RowId, Unresolved, Values, needed_rows, resolve
from cdc_platform_tests.sources.debezium.captures_read import Truth
from cdc_platform_tests.sources.debezium.postgres_texts import canonical

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
        event.is_whole_row,
        may_move=event.mod_type is ModType.DELETE,
    )


def fold(events: Sequence[SourceEvent], batch: int) -> tuple[Tables, list[Unresolved]]:
    """Return the rows after all changes, taken in batches, and what was unresolved on the way."""
    tables: Tables = {}
    departed: Mapping[RowId, Values] = {}
    unresolved: list[Unresolved] = []
    for start in range(0, len(events), batch):
        changes = [row_change(event) for event in events[start : start + batch]]
        stored = {row_id: tables.get(row_id) for row_id in needed_rows(changes)}
        result = resolve(changes, stored, departed)
        departed = result.departed
        unresolved += result.unresolved
        for change in result.changes:
            _apply(tables, change)
    return tables, unresolved


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
