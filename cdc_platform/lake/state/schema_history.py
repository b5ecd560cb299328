"""The stored history of the source's schema."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.commits import POSITION, Mark, Version, conflicts_as, read_mark
from cdc_platform.model.base.schemas import SCHEMA_CHANGES
from cdc_platform.model.base.stored_names import CYCLE, SCHEMA
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent


def list_schema_events(lake: Lake) -> tuple[SchemaEvent, ...]:
    """Return all changes of the source's schema, in order."""
    return _list_events(lake.system_table(SCHEMA))


def load_history(lake: Lake) -> SchemaHistory:
    """Return the stored history of the source's schema."""
    table = lake.system_table(SCHEMA)
    version = Version.newest(table)
    return at_mark(_read_history(version) if version is not None else SchemaHistory(), read_mark(table))


# The status page and the sensors ask every few seconds, and hundreds of tables have ten thousands of changes.
@lru_cache(maxsize=4)
def _read_history(version: Version) -> SchemaHistory:
    return build_stored_history(_list_events(version.table))


def load_history_at(lake: Lake, cycle: int) -> SchemaHistory:
    """Return the history of the source's schema up to a cycle of the log."""
    return build_stored_history(event for event in list_schema_events(lake) if event.cycle <= cycle)


def build_stored_history(events: Iterable[SchemaEvent]) -> SchemaHistory:
    """Return the history that results from stored changes, in order.

    Raises:
        LakeDamaged: a change does not apply to the table or column that it names, or its value is malformed.
    """
    history = SchemaHistory()
    for event in events:
        place = f"`{event.change}` of {event.table or 'the stream'} {event.name or ''} in cycle {event.cycle}"
        with understanding(SCHEMA, place):
            history = history.after(event)
    return history


def at_mark(history: SchemaHistory, mark: Mark) -> SchemaHistory:
    """Return the history with a mark of the log up to which it has all changes."""
    return replace(history, cycle=mark.cycle, position_micros=mark.position_micros)


def append_events(lake: Lake, history: SchemaHistory, mark: Mark, events: Sequence[SchemaEvent]) -> None:
    """Commit the changes between a history and a mark of the log; commits even without changes.

    Raises:
        CommitConflict: another run has committed changes since that history was loaded.
    """
    table = lake.system_table(SCHEMA)
    conflict = "Another run has written the schema's history in between; the next cycle continues."
    if read_mark(table).cycle > history.cycle:
        raise CommitConflict(conflict)
    rows = [_as_row(number, event) for number, event in enumerate(events)]
    properties = {CYCLE: str(mark.cycle), POSITION: str(mark.position_micros or 0)}
    with conflicts_as(conflict):
        table.append(pa.Table.from_pylist(rows, SCHEMA_CHANGES), snapshot_properties=properties)


@understanding(SCHEMA)
def _list_events(table: Table) -> tuple[SchemaEvent, ...]:
    rows = table.scan().to_arrow().to_pylist()
    return tuple(_as_event(row) for row in sorted(rows, key=lambda row: (row["cycle"], row["number"])))


def _as_row(number: int, event: SchemaEvent) -> dict[str, Any]:
    return {
        "cycle": event.cycle,
        "number": number,
        "change": event.change.value,
        "table_name": event.table,
        "name": event.name,
        "value": event.value,
        "previous_value": event.previous,
        "is_primary_key": event.is_primary_key,
        "ordinal_position": event.ordinal,
        "since": to_datetime(event.since_micros) if event.since_micros is not None else None,
        "since_order": event.since_order,
    }


def _as_event(row: Mapping[str, Any]) -> SchemaEvent:
    return SchemaEvent(
        cycle=row["cycle"],
        change=SchemaChange(row["change"]),
        table=row["table_name"],
        name=row["name"],
        value=row["value"],
        previous=row["previous_value"],
        is_primary_key=row["is_primary_key"],
        ordinal=row["ordinal_position"],
        since_micros=from_datetime(row["since"]) if row["since"] is not None else None,
        since_order=row.get("since_order") or "",
    )
