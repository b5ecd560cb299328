"""Schema changes from records and schema reads, and the columns that tables get for them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import pytest

from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory, is_convertible, same_type
from cdc_platform.model.schema.exclusions import (
    Exclusion,
    describe_findings,
    late_columns,
    may_lack_rows,
    stream_exclusions,
    table_exclusions,
)
from cdc_platform.model.schema.observed_columns import ObservedColumn, parse_column_types
from cdc_platform.model.schema.schema_events import SchemaChange, describe_event
from cdc_platform.model.schema.schema_finder import find_events, is_news
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.model.schema_windows import changes, follow, notes, observation, read_at


def lake_columns(columns: ColumnHistory) -> dict[str, str]:
    """Return the lake's columns with the codes of their types."""
    return {version.lake_name: version.type.code for version in columns.versions}


def test_the_beginning_is_no_change() -> None:
    """Columns of the first schema read and the first records count as there from the beginning."""
    history, events = follow(([observation(5, notes(text="STRING(9)"))], read_at(9, notes(text="STRING(9)"))))
    assert changes(events) == []
    assert lake_columns(history.tables["notes"]) == {"id": "INT64", "text": "STRING"}
    assert history.tables["notes"].schema == notes(text="STRING(9)")


def test_a_column_is_added_where_a_record_names_it_first() -> None:
    """Its life begins with the first record that knows it, also within the first window."""
    narrow, wide = notes(text="STRING(9)"), notes(text="STRING(9)", rank="INT64")
    for windows in (
        [([observation(5, narrow), observation(7, wide)], read_at(9, wide))],
        [([observation(5, narrow)], read_at(6, narrow)), ([observation(7, wide)], read_at(9, wide))],
    ):
        history, events = follow(*windows)
        assert changes(events) == [(SchemaChange.COLUMN_ADDED, "rank", 7)]
        schema = history.tables["notes"].schema_after(0)
        lives = {column.name: column.life for column in schema.columns}
        assert lives["text"] is None
        assert lives["rank"] is not None
        assert (lives["rank"].since_inclusive, lives["rank"].until_exclusive) == ((7, ""), None)
        assert not history.tables["notes"].schema_after(history.cycle).is_evolving


def test_a_dropped_column_stays_with_its_life() -> None:
    """It ends with the first whole row without it, or by the look; the lake keeps it."""
    narrow, wide = notes(text="STRING(9)"), notes(text="STRING(9)", rank="INT64")
    history, events = follow(
        ([observation(5, wide)], read_at(6, wide)), ([observation(8, narrow)], read_at(9, narrow))
    )
    assert changes(events) == [(SchemaChange.COLUMN_DROPPED, "rank", 8)]
    assert lake_columns(history.tables["notes"]) == {"id": "INT64", "text": "STRING", "rank": "INT64"}
    assert [column.name for column in history.tables["notes"].schema.columns] == ["id", "text"]
    _, events = follow(([observation(5, wide)], read_at(6, wide)), ([], read_at(9, narrow)))
    assert changes(events) == [(SchemaChange.COLUMN_DROPPED, "rank", 9)]


def test_whole_rows_alone_drop_nothing() -> None:
    """A row that lacks a column which the source still has may have been written without it."""
    narrow, wide = notes(text="STRING(9)"), notes(text="STRING(9)", rank="INT64")
    _, events = follow(
        ([observation(5, wide)], read_at(6, wide)), ([observation(8, narrow)], read_at(9, wide))
    )
    assert changes(events) == []


def test_a_type_changed_in_place_converts() -> None:
    """The newest version has the name; the former one is set aside, and its values are to be converted."""
    old, new = notes(text="STRING(9)"), notes(text="BYTES(9)")
    history, events = follow(
        ([observation(5, old)], read_at(6, old)), ([observation(8, new)], read_at(9, new))
    )
    assert changes(events) == [(SchemaChange.COLUMN_RETYPED, "text", 8)]
    columns = history.tables["notes"]
    assert lake_columns(columns) == {"id": "INT64", "text__string": "STRING", "text": "BYTES"}
    pairs = [(former.lake_name, newer.lake_name) for former, newer in columns.conversions_after(1)]
    assert pairs == [("text__string", "text")]
    assert columns.conversions_after(2) == ()


def test_another_column_of_the_same_name_converts_nothing() -> None:
    """Dropped and added again with another type, or away for a while: older rows read as NULL."""
    old, new, none = notes(text="STRING(9)"), notes(text="INT64"), notes()
    for second in ([observation(8, new)], [observation(7, none), observation(8, new)]):
        history, _ = follow(([observation(5, old)], read_at(6, old)), (second, read_at(9, new)))
        columns = history.tables["notes"]
        assert lake_columns(columns) == {"id": "INT64", "text__string": "STRING", "text": "INT64"}
        assert columns.conversions_after(0) == ()
    other = notes(text="BYTES(9)")
    history, events = follow(
        ([observation(5, old)], read_at(6, old)),
        ([observation(7, none), observation(8, other)], read_at(9, other)),
    )
    assert [change for change, _, _ in changes(events)] == [
        SchemaChange.COLUMN_DROPPED,
        SchemaChange.COLUMN_ADDED,
    ]
    assert history.tables["notes"].conversions_after(0) == ()


def test_names_that_are_set_aside_stay_different() -> None:
    """A column may come and go, and change the case of its name; no version takes another's place."""
    text, other = notes(text="STRING(9)"), notes(Text="STRING(9)")
    history, _ = follow(
        ([observation(5, text)], read_at(6, text)),
        ([], read_at(7, notes())),
        ([observation(8, text)], read_at(9, text)),
        ([observation(10, other)], read_at(11, other)),
    )
    assert list(lake_columns(history.tables["notes"])) == ["id", "text__string", "text__string_2", "Text"]


def test_tables_come_and_go() -> None:
    """A dropped table that comes again starts over; one that was not watched for a while has a gap."""
    first = read_at(5, notes())
    history, events = follow(([], first), ([], read_at(6)), ([observation(7, notes())], read_at(8, notes())))
    assert changes(events) == [(SchemaChange.TABLE_DROPPED, None, 6), (SchemaChange.TABLE_ADDED, None, 7)]
    begun = history.tables["notes"].last_beginning
    assert begun is not None
    assert (begun.cycle, begun.micros) == (3, 7)
    unwatching = SchemaRead(6, (), {"notes": ("id",)}, {})
    history, events = follow(([], first), ([], unwatching), ([], read_at(8, notes())))
    assert [change for change, _, _ in changes(events)] == [
        SchemaChange.TABLE_UNWATCHED,
        SchemaChange.TABLE_ADDED,
    ]
    columns = history.tables["notes"]
    assert (columns.last_beginning, columns.has_gap, may_lack_rows(history, columns)) == (None, True, True)


@pytest.mark.parametrize(
    ("before", "now", "is_created"),
    [
        (True, True, True),
        # It names its tables: one that it names now may have had rows before.
        (True, False, False),
        (False, True, False),
    ],
)
def test_a_table_is_whole_in_the_log_if_it_was_watched_from_its_making(
    *, before: bool, now: bool, is_created: bool
) -> None:
    """A stream that watches all records a new table from its first row on; one that names tables may not."""
    first, _ = follow(([], read_at(5, table("other", {"id": "INT64"}, {}))))
    first = replace(first, position_micros=5)
    looked = replace(read_at(8, table("other", {"id": "INT64"}, {}), notes()), watches_all=now)

    def read_back(micros: int) -> SchemaRead:
        return SchemaRead(micros, (), {}, {}, watches_all=before)

    history = reduce(SchemaHistory.after, find_events(first, 2, {}, looked, read_back=read_back), first)
    assert is_created == history.tables["notes"].is_created


def test_a_table_may_be_created_under_way() -> None:
    """A table that certainly did not exist before is in the log whole; no other one is."""
    other = table("other", {"id": "INT64"}, {})
    everything = read_at(5, other)
    partly = SchemaRead(5, (other,), {"notes": ("id",)}, {})
    for first, second, is_created in (
        (everything, read_at(8, other, notes()), True),
        (partly, read_at(8, other, notes()), False),
        (everything, read_at(8, notes()), True),
        (everything, replace(read_at(8, notes()), populated=frozenset({"notes"})), False),
        (everything, read_at(8, other, notes(), is_exact=False), False),
    ):
        history, _ = follow(([], first), ([observation(7, notes())], second))
        assert is_created == history.tables["notes"].is_created
    history, _ = follow(([], everything))
    assert not history.tables["other"].is_created


def test_a_late_schema_read_adds_but_takes_nothing_away() -> None:
    """Where the source shows only a later schema, columns missing there may still be in records."""
    wide, narrow = notes(text="STRING(9)", rank="INT64"), notes(text="INT64", more="DATE")
    history, events = follow(
        ([observation(5, wide)], read_at(6, wide)),
        ([], read_at(9, narrow, is_exact=False)),
        ([], read_at(9, is_exact=False)),
    )
    assert changes(events) == [(SchemaChange.COLUMN_ADDED, "more", 9)]
    assert set(lake_columns(history.tables["notes"])) == {"id", "text", "rank", "more"}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[]",
        "{}",
        "no JSON",
        '[{"name": "text"}]',  # no type
        '[{"name": "text", "type": {"code": "STRING"}, "is_primary_key": false, "ordinal_position": 2}]',
    ],
)
def test_records_that_do_not_name_their_key_say_nothing(text: str | None) -> None:
    """Anything but a list of columns with the key in it is not evidence."""
    assert parse_column_types(text) is None


def test_most_records_are_no_news() -> None:
    """Records that show what is known, or a part of it, cost no second look."""
    wide = notes(text="STRING(9)", rank="INT64")
    history, _ = follow(([], read_at(6, wide)))
    columns: Mapping[str, ObservedColumn] = observation(7, wide).columns
    part = {name: column for name, column in columns.items() if name != "rank"}
    assert not is_news(history, "notes", columns, is_whole=True)
    assert not is_news(history, "notes", part, is_whole=False)
    assert is_news(history, "notes", part, is_whole=True)
    assert is_news(history, "others", columns, is_whole=False)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("STRING(9)", "BYTES(9)", True),
        ("ARRAY<BYTES(9)>", "ARRAY<STRING(9)>", True),
        ("STRING(9)", "INT64", False),
        ("FLOAT32", "FLOAT64", False),  # Spanner does not allow it in place
        ("STRING(9)", "ARRAY<STRING(9)>", False),
    ],
)
def test_only_what_spanner_converts_is_converted(old: str, new: str, expected: bool) -> None:
    """Types between which Spanner changes a column in place."""
    types = [ColumnType.from_spanner_type(text) for text in (old, new)]
    assert expected == is_convertible(*types)


def test_rare_types_may_be_spelled_differently() -> None:
    """A type without a code in the records is the one that the information schema names."""
    assert same_type(ColumnType("TYPE_CODE_UNSPECIFIED"), ColumnType("UUID"))
    assert same_type(ColumnType("ARRAY", ColumnType("HOLOGRAM")), ColumnType("ARRAY", ColumnType("hologram")))
    assert same_type(ColumnType("`ex.Msg`"), ColumnType("PROTO"))
    assert same_type(ColumnType("ARRAY", ColumnType("ENUM")), ColumnType("ARRAY", ColumnType("`ex.Enum`")))
    assert not same_type(ColumnType("`ex.Msg`"), ColumnType("INT64"))
    assert not same_type(ColumnType("PROTO"), ColumnType("ENUM"))
    assert not same_type(ColumnType("STRING"), ColumnType("JSON"))
    assert not same_type(ColumnType("ARRAY", ColumnType("STRING")), ColumnType("ARRAY", ColumnType("JSON")))


def test_what_is_left_out_is_reported_and_remembered() -> None:
    """Filters, and columns that are not watched or only since later, are findings with their reasons."""
    partly = SchemaRead(5, (notes(text="STRING(9)"),), {"notes": ("rank",)}, {"exclude_delete": "true"})
    wide = notes(text="STRING(9)", rank="INT64")
    history, events = follow(([], partly), ([], read_at(9, wide)))
    assert table_exclusions(history, history.tables["notes"]) == Exclusion(
        ("the change stream has had exclude_delete = true",), surplus=True
    )
    assert may_lack_rows(history, history.tables["notes"])
    assert late_columns(history.tables["notes"]) == ("rank",)
    text = " ".join(describe_findings(history))
    assert "has had exclude_delete = true" in text
    assert "`rank` has only been watched since 1970-01-01T00:00:00.000009Z" in text
    assert "option exclude_delete of the change stream: true became None" in describe_event(events[-1])
    first, _ = follow(([], partly))
    assert "columns that the change stream does not watch are not in the lake: rank" in " ".join(
        describe_findings(first)
    )
    assert stream_exclusions(SchemaHistory()) == Exclusion()


def test_types_that_nobody_knows_are_findings() -> None:
    """A column that is kept as text, since this version does not know its type, is named with the type."""
    history, _ = follow(([], read_at(5, notes(text="STRING(9)", shape="ARRAY<HOLOGRAM>"))))
    (text,) = describe_findings(history)
    assert text.startswith("`notes`: the column `shape` has the type ARRAY<HOLOGRAM>")


def test_a_table_without_a_key_column_is_a_finding_and_no_table() -> None:
    """It is named with the advice as long as it is there, and does not count as one that is not watched."""
    plain, unwatched = notes(text="STRING(9)"), {"one": ("w",)}
    with_one = SchemaRead(9, (plain,), unwatched, {}, keyless=("one",))
    history, events = follow(([], read_at(5, plain)), ([], with_one))
    assert (frozenset({"one"}), frozenset(), {"notes"}) == (
        history.keyless,
        history.other_names,
        {*history.tables},
    )
    (text,) = describe_findings(history)
    assert text.startswith("`one` has a primary key without columns, so it is not in the lake")
    assert [describe_event(event) for event in events if event.since_micros] == [
        'tables without a key column are ["one"] at 1970-01-01T00:00:00.000009Z',
    ]
    assert describe_findings(follow(([], with_one), ([], read_at(11, plain)))[0]) == ()


def test_the_history_is_built_of_its_events() -> None:
    """Stored events give the same history again."""
    old, new = notes(text="STRING(9)"), notes(text="BYTES(9)", rank="INT64")
    history, events = follow(
        ([observation(5, old)], read_at(6, old)), ([observation(8, new)], read_at(9, new))
    )
    assert reduce(SchemaHistory.after, events, SchemaHistory()).tables == history.tables
    assert [describe_event(event) for event in events if event.since_micros] == [
        "`notes`.`text` changed from STRING to BYTES at 1970-01-01T00:00:00.000008Z",
        "`notes`.`rank` (INT64) was added at 1970-01-01T00:00:00.000008Z",
    ]


@pytest.mark.parametrize(
    ("type_text", "copied_micros", "lake_name"),
    [
        ("string", 6, "text__string"),  # before the column was recreated
        ("bigint", 9, "text__int64"),
        ("string", 12, "text"),  # the type is that of the first version, which is over
        ("bigint", 6, "text__int64"),  # the log has found it later than it was there
        ("string", None, "text__string"),  # no copy: what a table has is oldest
        ("boolean", 12, "text"),  # no version has the type
    ],
)
def test_a_copied_column_is_the_version_of_its_moment(
    type_text: str, copied_micros: int | None, lake_name: str
) -> None:
    """The type decides; if versions have the same type, the version that had not ended is the one."""
    text, number = notes(text="STRING(9)"), notes(text="INT64")
    history, _ = follow(
        ([observation(5, text), observation(8, number), observation(11, text)], read_at(12, text))
    )
    version = history.tables["notes"].version_stored("text", type_text, copied_micros, {"id", "text"})
    assert version is not None
    assert lake_name == version.lake_name


def test_a_name_that_is_claimed_again_distinguishes_the_versions() -> None:
    """Of the names that a version has had, the newest one that the table has is where its values are."""
    first, second = notes(note="STRING(9)"), notes(note="INT64")
    claimed = notes(note="INT64", note__string="STRING(9)")
    history, _ = follow(
        ([observation(5, first), observation(8, second), observation(9, claimed)], read_at(12, claimed))
    )
    columns = history.tables["notes"]
    for name, there in (("note", {"note"}), ("note__string", {"note", "note__string"})):
        version = columns.version_stored(name, "string", None, there)
        assert version is not None
        assert version.lake_name == "note__string_2"


def test_a_copy_shows_columns_that_nothing_else_shows() -> None:
    """Between two looks a column comes and goes; only the copy has seen it, and the lake keeps its values."""
    plain, wide = notes(text="STRING(9)"), notes(text="STRING(9)", fleeting="INT64")
    history, events = follow(
        ([observation(5, plain)], read_at(6, plain)), ([observation(8, wide)], read_at(9, plain))
    )
    assert changes(events) == [
        (SchemaChange.COLUMN_ADDED, "fleeting", 8),
        (SchemaChange.COLUMN_DROPPED, "fleeting", 9),
    ]
    assert "fleeting" in lake_columns(history.tables["notes"])


def test_a_message_that_records_and_schema_spell_differently_is_one_type() -> None:
    """Otherwise each cycle would retype the column twice, and set its values aside."""
    named, coded = notes(x="`ex.Msg`"), notes(x="PROTO")
    windows = [([observation(micros, coded)], read_at(micros + 5, named)) for micros in (20, 30, 40)]
    history, events = follow(([], read_at(10, named)), *windows)
    assert changes(events) == []
    assert lake_columns(history.tables["notes"]) == {"id": "INT64", "x": "`ex.Msg`"}
