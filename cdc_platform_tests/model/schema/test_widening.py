"""The type of a column whose events come in any order: it does not depend on which came first."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumn, ObservedColumns
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform.model.schema.schema_finder import find_events, is_news
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import DECIMAL, ColumnType, spark_type
from cdc_platform.model.schema.widening import DIGITS, TEXT, joined_type, keeps_values, key_family

INT, FLOAT, DAY, MOMENT = (ColumnType(code) for code in ("INT64", "FLOAT64", "DATE", "TIMESTAMP"))


def decimal(text: str) -> ColumnType:
    """Return a decimal of a precision and scale."""
    return ColumnType(DECIMAL, annotation=text)


KINDS = [
    *(INT, FLOAT, ColumnType("FLOAT32"), decimal("5,2"), decimal("12,0"), decimal("30,20"), decimal("65,30")),
    *(DIGITS, TEXT, ColumnType("BOOL"), ColumnType("JSON"), ColumnType("BYTES"), ColumnType("ARRAY", INT)),
    *(DAY, MOMENT, ColumnType("DATETIME")),
]


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        (INT, FLOAT, DIGITS),  # a float has no room for the last of an integer's digits
        (INT, ColumnType("FLOAT32"), DIGITS),
        (INT, decimal("5,2"), decimal("21,2")),
        (decimal("5,2"), decimal("10,4"), decimal("10,4")),
        (decimal("38,0"), decimal("5,2"), DIGITS),
        (decimal("65,30"), INT, DIGITS),
        (ColumnType("FLOAT32"), FLOAT, FLOAT),
        (decimal("5,2"), FLOAT, DIGITS),
        (DAY, MOMENT, MOMENT),
        (MOMENT, ColumnType("DATETIME"), TEXT),
        (INT, TEXT, TEXT),
        (ColumnType("BOOL"), INT, TEXT),
        (ColumnType("BYTES"), ColumnType("JSON"), TEXT),
    ],
)
def test_the_wider_type_holds_both(first: ColumnType, other: ColumnType, expected: ColumnType) -> None:
    """Numbers stay numbers as long as all of their digits have room; what has no other room is text."""
    assert expected == joined_type(first, other) == joined_type(other, first)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_types_does_not_matter(kinds: list[ColumnType], choice: Random) -> None:
    """The result holds each of the types that it came from, and is the same in any order of them."""
    wide = reduce(joined_type, kinds)
    assert all(wide == joined_type(wide, kind) for kind in kinds)
    choice.shuffle(kinds)
    assert wide == reduce(joined_type, kinds)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (INT, TEXT, True),
        (INT, FLOAT, True),  # all databases round in one way
        (INT, ColumnType("FLOAT32"), False),
        (FLOAT, ColumnType("FLOAT32"), False),
        (FLOAT, INT, False),
        (INT, DIGITS, True),
        (INT, decimal("12,2"), False),  # has too few digits for some
        (decimal("5,2"), decimal("10,4"), True),
        (decimal("5,2"), TEXT, True),
        (decimal("10,4"), decimal("5,2"), False),
        (ColumnType("FLOAT32"), FLOAT, True),
        (FLOAT, DIGITS, False),  # PostgreSQL rounds to fifteen digits
        (FLOAT, TEXT, False),
        (DAY, ColumnType("DATETIME"), True),
        (DAY, TEXT, True),
        (DAY, MOMENT, False),  # midnight of a zone that nobody says
        (ColumnType("DATETIME"), MOMENT, False),
        (MOMENT, TEXT, False),
        (ColumnType("JSON"), TEXT, True),
        (TEXT, ColumnType("JSON"), False),
        (ColumnType("BYTES"), TEXT, False),
        (TEXT, ColumnType("BYTES"), False),
        (ColumnType("ARRAY", INT), ColumnType("ARRAY", TEXT), False),
    ],
)
def test_values_are_kept_where_the_new_type_writes_them_in_one_way(
    old: ColumnType, new: ColumnType, *, expected: bool
) -> None:
    """A source of events that come in order does not state how it has converted what was stored."""
    assert expected == keeps_values(old, new)
    before = SchemaEvent(1, SchemaChange.COLUMN_ADDED, "t", "a", old.to_json())
    observations = {
        "t": [ObservedColumns(2, {"a": ObservedColumn(new, is_primary_key=False, ordinal=1)}, is_whole=True)]
    }
    history = SchemaHistory().after(SchemaEvent(1, SchemaChange.TABLE_ADDED, "t")).after(before)
    (event,) = find_events(
        replace(history, cycle=1), 2, observations, SchemaRead(2, (), {}, {}, is_exact=False)
    )
    assert expected == (event.change is SchemaChange.COLUMN_WIDENED)
    table = history.after(event).tables["t"]
    is_one_of_the_lake = expected and spark_type(old) == spark_type(new)
    assert (expected and not is_one_of_the_lake) == bool(table.conversions_after(1))
    assert is_one_of_the_lake == (len(table.versions) == 1)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_keys_of_one_family_stay_in_it(first: ColumnType, other: ColumnType) -> None:
    """Their wider type is of it, too, unless it is that of two arrays."""
    if key_family(first) == key_family(other) and first.code != "ARRAY":
        assert key_family(first) == key_family(joined_type(first, other))


def history_of(shapes: Sequence[dict[str, ColumnType]]) -> SchemaHistory:
    """Return what is known after a table was seen with these columns, one shape a cycle."""
    history = SchemaHistory()
    for cycle, shape in enumerate(shapes, start=1):
        for event in events_of(history, cycle, shape):
            history = history.after(event)
        history = SchemaHistory(cycle, cycle, history.tables)
    return history


def events_of(history: SchemaHistory, cycle: int, shape: dict[str, ColumnType]) -> tuple[SchemaEvent, ...]:
    """Return what one shape changes."""
    columns = {"id": ObservedColumn(INT, is_primary_key=True, ordinal=1)}
    for ordinal, (name, kind) in enumerate(shape.items(), start=2):
        columns[name] = ObservedColumn(kind, is_primary_key=False, ordinal=ordinal)
    observations = {"t": [ObservedColumns(cycle, columns, is_whole=True)]}
    events = find_events(history, cycle, observations, None, widens=True)
    assert bool(events) == is_news(history, "t", columns, is_whole=True, widens=True)
    return events


def types_of(table: ColumnHistory) -> dict[str, str]:
    """Return the columns that the source has, by their names in the lake."""
    return {version.lake_name: version.type.text for version in table.live_versions}


def test_old_shapes_that_come_late_change_nothing() -> None:
    """In any order of four shapes the table gets the same columns; one that was dropped or renamed stays."""
    shapes = [
        {"amount": INT, "note": TEXT},
        {"amount": INT, "added": DAY, "note": TEXT},
        {"amount": decimal("10,2"), "added": DAY},
        {"amount": FLOAT, "comment": TEXT, "added": MOMENT},
    ]
    expected = {
        "id": "INT64",
        "amount": "PG_NUMERIC",
        "note": "STRING",
        "added": "TIMESTAMP",
        "comment": "STRING",
    }
    for order in itertools.permutations(shapes):
        history = history_of([*order, *shapes])
        assert expected == types_of(history.tables["t"])
        assert all(not events_of(history, 99, shape) for shape in shapes)


def test_what_was_stored_is_carried_into_the_wider_column() -> None:
    """The former one keeps what it had, under its own name."""
    table = history_of([{"a": INT, "b": ColumnType("BYTES")}, {"a": TEXT, "b": TEXT}]).tables["t"]
    assert {("a__int64", "a", True), ("b__bytes", "b", True)} == {
        (old.lake_name, new.lake_name, new.is_widened) for old, new in table.conversions_after(0)
    }
    assert {"id", "a", "b", "a__int64", "b__bytes"} == {column.name for column in table.whole_schema.columns}


def test_names_that_differ_in_case_are_two_columns() -> None:
    """Neither replaces the other in any order."""
    table = history_of([{"name": TEXT}, {"Name": INT}, {"name": TEXT}, {"Name": DAY}]).tables["t"]
    assert types_of(table) == {"id": "INT64", "name": "STRING", "Name__string": "STRING"}
    assert [event.change for event in events_of(history_of([{"name": TEXT}]), 2, {"Name": INT})] == [
        SchemaChange.COLUMN_CASE_VARIANT
    ]


def test_a_case_variant_keeps_its_own_name_in_events() -> None:
    """Also after the cycle that found it: its values would not be found there under the lake's name."""
    table = history_of([{"name": TEXT}, {"Name": INT}]).tables["t"]
    for cycle in (0, 9):
        names = {column.name: column.source_name for column in table.schema_after(cycle).columns}
        assert names == {"id": "id", "name": "name", "Name__int64": "Name"}


def test_equal_columns_of_the_lake_stay_as_they_are() -> None:
    """JSON that becomes text is text already."""
    table = history_of([{"a": ColumnType("JSON")}, {"a": TEXT}]).tables["t"]
    assert [spark_type(column.type) for column in table.whole_schema.columns] == ["bigint", "string"]
    assert table.conversions_after(0) == ()
