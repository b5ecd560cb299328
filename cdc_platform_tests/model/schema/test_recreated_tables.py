"""Tables that are dropped and recreated between two schema reads, recognised by their keys."""

from dataclasses import replace
from functools import reduce
from typing import NoReturn

import pytest

from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumns
from cdc_platform.model.schema.recreated_tables import ONE_CHANGE_MICROS, find_populated, has_other_key
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
    ("steps", "rows_since", "populated"),
    [
        # Each step is a moment from which on these tables are watched; `notes` is at the beginning.
        ({20_000: ("log",)}, {"log": 0}, {"log"}),
        ({20_000: ("notes", "log")}, {"log": 0}, {"log"}),  # another table got its former name at once
        ({20_000: ("log",), 40_000: ("log", "notes")}, {"log": 0, "notes": 0}, {"log"}),
        ({20_000: ("notes", "log")}, {"log": 40_000}, set()),
        ({20_000: ("notes", "log"), 60_000: ("notes", "more")}, {"log": 40_000, "more": 40_000}, {"more"}),
        ({20_000: ("notes", "log")}, {}, set()),
        ({20_000: ()}, {}, set()),
    ],
)
def test_a_table_with_rows_when_it_came_up_was_another_one(
    steps: dict[int, tuple[str, ...]], rows_since: dict[str, int], populated: set[str]
) -> None:
    """A new table is empty; the others had another name, or were not watched."""

    def read_back(micros: int) -> SchemaRead:
        names = [names for since, names in steps.items() if since <= micros]
        present = tuple(replace(NUMBER, name=name) for name in (names[-1] if names else ("notes",)))
        return SchemaRead(micros, present, {}, {})

    def has_rows(name: str, micros: int) -> bool:
        return micros >= rows_since.get(name, micros + 1)

    assert populated == find_populated(history_of(NUMBER), read_back(100_000), read_back, has_rows)


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_table_with_another_key_may_have_come_with_its_rows(*, has_rows: bool) -> None:
    """It got the name of a table that was dropped or renamed between two reads."""

    def read_back(micros: int) -> SchemaRead:
        return SchemaRead(micros, (NUMBER if micros < 20_000 else CODE,), {}, {})

    def had_rows(_: str, micros: int) -> bool:
        assert 20_000 <= micros <= 20_000 + ONE_CHANGE_MICROS
        return has_rows

    history, now = history_of(NUMBER), read_back(100_000)
    populated = find_populated(history, now, read_back, had_rows)
    assert ({"notes"} if has_rows else set()) == populated
    events = find_events(history, 2, {}, replace(now, populated=populated), read_back=read_back)
    assert reduce(SchemaHistory.after, events, history).tables["notes"].is_uncopied is has_rows


DROPPED = SchemaRead(8, (replace(NUMBER, name="other"),), {}, {})
"""The table `notes` is gone, and another one is there."""


def history_without_notes() -> SchemaHistory:
    """Return the history of a table that was dropped."""
    before = history_of(NUMBER)
    events = find_events(before, 2, {}, DROPPED)
    return replace(reduce(SchemaHistory.after, events, before), cycle=2, position_micros=8)


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_table_renamed_to_a_dropped_one_lacks_its_rows(*, has_rows: bool) -> None:
    """No copy brings them, since the lake already has a table of that name; a new table has none."""
    history, back = history_without_notes(), SchemaRead(10, (NUMBER,), {}, {}, watches_all=False)
    populated = find_populated(history, back, {8: DROPPED}.__getitem__, lambda *_: has_rows)
    events = find_events(history, 3, {}, replace(back, populated=populated))
    columns = reduce(SchemaHistory.after, events, history).tables["notes"]
    assert (True, has_rows, False) == (columns.is_watched, columns.is_uncopied, columns.is_created)


def unasked(*arguments: object) -> NoReturn:
    """Fail, because the answer is known already."""
    pytest.fail(f"the source was asked for {arguments}")


def test_a_new_table_of_a_listed_stream_is_copied_without_a_question() -> None:
    """Only a stream that watches all tables may have seen its creation."""
    now = SchemaRead(10, (replace(NUMBER, name="log"),), {}, {}, watches_all=False)
    assert set() == find_populated(history_of(NUMBER), now, unasked, unasked)


def test_what_the_source_does_not_show_may_have_had_rows() -> None:
    """Without its former schema any table that comes up may be an older one."""
    history, now = history_of(NUMBER), SchemaRead(100_000, (replace(NUMBER, name="log"),), {}, {})
    forgotten = SchemaRead(100_000, (), {}, {}, is_exact=False)
    assert {"log"} == find_populated(history, now, lambda _: forgotten, unasked)
    inexact = replace(now, is_exact=False)
    assert {"log"} == find_populated(history, inexact, lambda micros: SchemaRead(micros, (), {}, {}), unasked)
