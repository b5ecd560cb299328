"""Tables that are dropped and recreated between two schema reads, recognised by their keys."""

from dataclasses import replace
from functools import reduce

import pytest

from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumns
from cdc_platform.model.schema.recreated_tables import find_renamed, has_other_key
from cdc_platform.model.schema.schema_events import SchemaChange
from cdc_platform.model.schema.schema_finder import find_events
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema
from cdc_platform_tests.example_tables import table

NUMBER = table("notes", {"id": "INT64"}, {"v": "STRING(9)"})
CODE = table("notes", {"code": "STRING(9)"}, {"v": "STRING(9)"})


def observed_at(micros: int, schema: TableSchema) -> ObservedColumns:
    """Return what a whole row of a table shows."""
    return ObservedColumns.of_table(micros, schema, is_whole=True)


def history_of(schema: TableSchema) -> SchemaHistory:
    """Return the history of a table that was there from the beginning."""
    events = find_events(
        SchemaHistory(), 1, {"notes": [observed_at(5, schema)]}, SchemaRead(6, (schema,), {}, {})
    )
    return replace(reduce(SchemaHistory.after, events, SchemaHistory()), cycle=1, position_micros=6)


@pytest.mark.parametrize(
    ("is_other", "declared", "key"),
    [
        (False, "STRING", {"id": ColumnType("STRING")}),
        # Spanner changes a key so in place.
        (False, "STRING", {"id": ColumnType("BYTES")}),
        # The setting `nanosecond_columns` does so.
        (False, "TIMESTAMP", {"id": ColumnType("TIMESTAMP").with_nanoseconds()}),
        (True, "INT64", {"id": ColumnType("STRING")}),
        (True, "INT64", {"id": ColumnType("INT64"), "part": ColumnType("INT64")}),
        (True, "INT64", {"code": ColumnType("INT64")}),
        # The key was not observed.
        (False, "INT64", {}),
    ],
)
def test_a_key_shows_another_table(*, is_other: bool, declared: str, key: dict[str, ColumnType]) -> None:
    """Another name, another number of columns or a type that no column changes to is another table's key."""
    schema = table("notes", {"id": declared}, {"v": "STRING(9)"})
    assert is_other == has_other_key(history_of(schema).tables["notes"], key)


def test_a_table_is_recreated_where_a_record_has_another_key_first() -> None:
    """It begins with that record, and no further record or look begins it again."""
    history = history_of(NUMBER)
    observations = {"notes": [observed_at(7, NUMBER), observed_at(8, CODE), observed_at(9, CODE)]}
    events = find_events(history, 2, observations, SchemaRead(10, (CODE,), {}, {}))
    assert [(event.change, event.name, event.since_micros) for event in events if event.since_micros] == [
        (SchemaChange.TABLE_DROPPED, None, 8),
        (SchemaChange.TABLE_ADDED, None, 8),
        (SchemaChange.COLUMN_DROPPED, "id", 8),
        (SchemaChange.COLUMN_ADDED, "code", 8),
    ]
    after = reduce(SchemaHistory.after, events, history).tables["notes"]
    assert after.last_beginning is not None
    assert after.last_beginning.micros == 8
    assert [column.name for column in after.schema.key_columns] == ["code"]


def test_a_schema_read_of_another_moment_begins_no_table() -> None:
    """Only the records themselves show which of them belong to the table before."""
    history = history_of(NUMBER)
    schema_read = SchemaRead(10, (CODE,), {}, {}, is_exact=False)
    events = find_events(history, 2, {"notes": [observed_at(7, NUMBER)]}, schema_read)
    assert SchemaChange.TABLE_DROPPED not in {event.change for event in events}
    after = reduce(SchemaHistory.after, events, history).tables["notes"]
    assert [column.name for column in after.schema.key_columns] == ["id"]


@pytest.mark.parametrize(
    ("steps", "renamed"),
    [
        # Each step is a moment from which on these tables exist; `notes` does at the beginning.
        ({20_000: ("log",)}, {"log"}),
        ({20_000: (), 40_000: ("log",)}, set()),
        ({20_000: ("log", "notes"), 40_000: ("log",)}, set()),
        ({20_000: ("log", "notes"), 40_000: ("log", "other")}, {"other"}),
        ({20_000: ("interim",), 70_000: ("log",)}, {"log"}),
        # The order of the changes is unknown.
        ({20_000: (), 20_001: ("log",)}, {"log"}),
        ({70_000: ("log", "notes")}, set()),
        # Another table gets the name of the renamed one.
        ({20_000: ("log",), 40_000: ("log", "notes")}, {"log"}),
        ({20_000: ("log",), 40_000: ("log", "notes"), 60_000: ("log", "notes", "other")}, {"log"}),
    ],
)
def test_a_rename_takes_the_other_name_away_at_its_moment(
    steps: dict[int, tuple[str, ...]], renamed: set[str]
) -> None:
    """A table that appears while no other one disappears has no earlier rows."""

    def read_back(micros: int) -> SchemaRead:
        names = [names for since, names in steps.items() if since <= micros]
        present = tuple(replace(NUMBER, name=name) for name in (names[-1] if names else ("notes",)))
        return SchemaRead(micros, present, {}, {})

    assert renamed == find_renamed(history_of(NUMBER), read_back(100_000), read_back)


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_table_renamed_to_a_dropped_one_lacks_its_rows(*, is_renamed: bool) -> None:
    """No copy brings them, since the lake already has a table of that name; a new table has none."""
    other = replace(NUMBER, name="other")
    dropped = SchemaRead(8, (other,), {}, {})
    events = find_events(history_of(NUMBER), 2, {}, dropped)
    history = replace(reduce(SchemaHistory.after, events, history_of(NUMBER)), cycle=2, position_micros=8)
    back = SchemaRead(10, (NUMBER,) if is_renamed else (NUMBER, other), {}, {})
    events = find_events(history, 3, {}, back, read_back={8: dropped}.__getitem__)
    columns = reduce(SchemaHistory.after, events, history).tables["notes"]
    assert (True, is_renamed, False) == (columns.is_watched, columns.is_uncopied, columns.is_created)


def test_what_the_source_does_not_show_may_be_a_rename() -> None:
    """Without its former schema any table that comes up may be one that had another name."""
    history, now = history_of(NUMBER), SchemaRead(100_000, (replace(NUMBER, name="log"),), {}, {})
    for read_back in (None, lambda micros: SchemaRead(micros, (), {}, {}, is_exact=False)):
        assert {"log"} == find_renamed(history, now, read_back)
