"""Windows of the log in which the columns of the table `notes` are seen, and what follows from them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumns, parse_column_types
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform.model.schema.schema_finder import find_events
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.history import column_types_json

Change = tuple[SchemaChange, str | None, int | None]
Window = tuple[list[ObservedColumns], SchemaRead | None]


def notes(**values: str) -> TableSchema:
    """Return the table `notes` with value columns of these types."""
    return table("notes", {"id": "INT64"}, values)


def read_at(micros: int, *tables: TableSchema, is_exact: bool = True, **options: str) -> SchemaRead:
    """Return a look at a source that watches these tables whole."""
    return SchemaRead(micros, tables, {}, options, is_exact)


def observation(
    micros: int, schema: TableSchema, *, is_whole: bool = True, is_sure: bool = False
) -> ObservedColumns:
    """Return what a record of a table with these columns says."""
    columns = parse_column_types(
        column_types_json(schema, frozenset(column.name for column in schema.value_columns))
    )
    assert columns is not None
    return ObservedColumns(micros, columns, is_whole, is_sure)


def follow(
    *windows: Window, unwatched: Sequence[str] = (), is_exact: bool = True
) -> tuple[SchemaHistory, list[SchemaEvent]]:
    """Return the history and all events of windows on the table `notes`, each of which is a cycle.

    `unwatched` are the columns that a look back finds to be there and not watched.
    """

    def read_back(micros: int) -> SchemaRead:
        return SchemaRead(micros, (), {"notes": unwatched}, {}, is_exact)

    history, events = SchemaHistory(), list[SchemaEvent]()
    for cycle, (window_observations, schema_read) in enumerate(windows, start=1):
        observations = {"notes": window_observations} if window_observations else {}
        actual = find_events(history, cycle, observations, schema_read, read_back=read_back)
        events += actual
        history = replace(reduce(SchemaHistory.after, actual, history), cycle=cycle)
    return history, events


def changes(events: list[SchemaEvent]) -> list[Change]:
    """Return what happened after the beginning to the table."""
    return [
        (event.change, event.name, event.since_micros)
        for event in events
        if event.since_micros and event.table
    ]
