"""Columns that were dropped and added again as they were: what says of it, and what does not."""

from functools import reduce

import pytest

from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.exclusions import late_columns
from cdc_platform.model.schema.schema_events import SchemaChange
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform_tests.model.schema_windows import Window, changes, follow, notes, observation, read_at

TEXT, RANK, NOTE = {"text": "STRING(9)"}, {"rank": "INT64"}, {"note": "STRING(9)"}
FORMER: Window = ([observation(5, notes(**TEXT, **RANK))], read_at(6, notes(**TEXT, **RANK)))
RECREATED = notes(**RANK, **TEXT)
"""`text` was dropped and added again: it stands behind `rank` now."""


@pytest.mark.parametrize(
    ("windows", "gone_micros", "added_micros"),
    [
        # a cycle without it in between
        ([([], read_at(9, notes(**RANK))), ([observation(11, RECREATED)], read_at(12, RECREATED))], 9, 11),
        # the whole row of an update lacks it, in one and the same cycle
        (
            [
                (
                    [observation(8, notes(**RANK), is_sure=True), observation(11, RECREATED)],
                    read_at(12, RECREATED),
                )
            ],
            8,
            11,
        ),
        ([([observation(8, notes(**RANK), is_sure=True)], read_at(12, notes(**RANK, **TEXT)))], 8, 12),
        # nothing but its place
        ([([observation(8, RECREATED)], read_at(12, RECREATED))], 8, 8),
        ([([], read_at(12, RECREATED))], 12, 12),
        # in a record of it alone, only its ordinal shows it
        (
            [
                (
                    [observation(7, notes(**TEXT), is_whole=False), observation(8, RECREATED)],
                    read_at(12, RECREATED),
                )
            ],
            8,
            8,
        ),
        # with a new column ahead of it, after cycles in which nobody looked
        (
            [([], None), ([], read_at(9, notes(**RANK, **NOTE, **TEXT)))],
            9,
            9,
        ),
        # added again as a type to which Spanner would convert the former one
        ([([], read_at(9, notes(**RANK, text="BYTES(9)")))], 9, 9),
    ],
)
def test_a_column_recreated_as_it_was_has_no_older_values(
    windows: list[Window], gone_micros: int, added_micros: int
) -> None:
    """It is another column of the same name: the former one is set aside, and nothing is converted."""
    history, events = follow(FORMER, *windows)
    columns = history.tables["notes"]
    (former, newer) = (version for version in columns.versions if version.name == "text")
    assert (former.lake_name, newer.lake_name, columns.conversions_after(0)) == ("text__string", "text", ())
    assert (SchemaChange.COLUMN_DROPPED, "text", gone_micros) in changes(events)
    assert (SchemaChange.COLUMN_ADDED, "text", added_micros) in changes(events)
    assert former.until is not None
    assert (former.until.micros, newer.since.micros) == (gone_micros, added_micros)
    assert reduce(SchemaHistory.after, events, SchemaHistory()).tables == history.tables


@pytest.mark.parametrize(
    "windows",
    [
        # a column ahead of it was dropped
        [([observation(8, notes(**TEXT))], read_at(9, notes(**TEXT)))],
        # another one was added behind it, and seen by records at first
        [
            (
                [observation(8, notes(**TEXT, **RANK, **NOTE))],
                read_at(9, notes(**TEXT, **RANK, **NOTE), is_exact=False),
            ),
            ([], read_at(12, notes(**TEXT, **RANK, **NOTE))),
        ],
        # a row was inserted without it
        [
            (
                [observation(8, notes(**RANK)), observation(9, notes(**TEXT, **RANK))],
                read_at(9, notes(**TEXT, **RANK)),
            )
        ],
        # the source no longer shows what its schema was
        [([], read_at(9, RECREATED, is_exact=False))],
        # and shows it again
        [([], read_at(9, RECREATED, is_exact=False)), ([], read_at(12, RECREATED))],
        # what it was dropped and added with was the last one before, too: nothing says of that
        [([], read_at(9, notes(**TEXT, **RANK)))],
        # a column of before was not watched
        [
            ([], SchemaRead(9, (notes(**TEXT, **RANK),), {"notes": ("note",)}, {})),
            ([], read_at(12, notes(**NOTE, **TEXT, **RANK))),
        ],
    ],
)
def test_a_column_that_may_be_the_same_is(windows: list[Window]) -> None:
    """Without evidence that it was dropped, a column keeps its values."""
    history, events = follow(FORMER, *windows)
    assert [version.lake_name for version in history.tables["notes"].versions if version.name == "text"] == [
        "text"
    ]
    assert (SchemaChange.COLUMN_ADDED, "text") not in [change[:2] for change in changes(events)]


AWAY = [observation(8, notes(**TEXT), is_sure=True)]
BACK = [observation(10, notes(**TEXT, **RANK), is_sure=True)]


@pytest.mark.parametrize(
    ("windows", "gone_micros", "added_micros"),
    [
        # within one cycle, also as the last column of the table
        ([([*AWAY, *BACK], read_at(12, notes(**TEXT, **RANK)))], 8, 10),
        # seen again by a look only
        ([(AWAY, read_at(12, notes(**TEXT, **RANK)))], 8, 12),
        # with another type meanwhile
        ([(AWAY, read_at(12, notes(**TEXT, rank="STRING(9)")))], 8, 12),
        # a cycle in between
        (
            [
                (AWAY, SchemaRead(9, (notes(**TEXT),), {"notes": ("rank",)}, {})),
                (BACK, read_at(12, notes(**TEXT, **RANK))),
            ],
            8,
            10,
        ),
    ],
)
def test_a_column_that_left_the_stream_for_a_while_lacks_what_changed(
    windows: list[Window], gone_micros: int, added_micros: int
) -> None:
    """It comes back without its earlier values, which may be outdated, and is reported as incomplete."""
    history, events = follow(FORMER, *windows, unwatched=["rank"])
    columns = history.tables["notes"]
    assert (SchemaChange.COLUMN_DROPPED, "rank", gone_micros) in changes(events)
    assert (SchemaChange.COLUMN_ADDED, "rank", added_micros) in changes(events)
    assert late_columns(columns) == ("rank",)
    assert "rank__int64" in {version.lake_name for version in columns.versions}
    assert columns.unwatched == ()
    assert reduce(SchemaHistory.after, events, SchemaHistory()).tables == history.tables


def test_a_column_that_is_watched_under_way_lacks_what_it_had() -> None:
    """Earlier whole rows and copies lack it, although the source shows that it existed."""
    for unwatched, late in (["rank"], ("rank",)), ([], ()):
        window = ([*AWAY, *BACK], read_at(12, notes(**TEXT, **RANK)))
        history, events = follow(window, unwatched=unwatched)
        assert (SchemaChange.COLUMN_ADDED, "rank", 10) in changes(events)
        assert late_columns(history.tables["notes"]) == late


def test_a_column_that_records_lack_is_kept_where_the_source_gives_no_reason() -> None:
    """Its old versions are gone: nothing counts as dropped by absence alone."""
    window = ([*AWAY, *BACK], read_at(12, notes(**TEXT, **RANK)))
    history, events = follow(FORMER, window, is_exact=False)
    assert changes(events) == []
    assert late_columns(history.tables["notes"]) == ()


@pytest.mark.parametrize(
    "windows",
    [
        # a record that names it alone, and a look that shows that it has moved
        [
            (
                [observation(8, notes(rank="STRING(9)"), is_whole=False)],
                read_at(12, notes(**NOTE, rank="STRING(9)")),
            )
        ],
        # at first only records show it
        [
            (
                [observation(8, notes(**TEXT, **NOTE, rank="STRING(9)"))],
                read_at(9, notes(**TEXT), is_exact=False),
            ),
            ([], read_at(20, notes(**TEXT, **NOTE, rank="STRING(9)"))),
        ],
        [
            ([observation(8, notes(**TEXT, **NOTE, rank="STRING(9)"))], None),
            ([], read_at(20, notes(**TEXT, **NOTE, rank="STRING(9)"))),
        ],
    ],
)
def test_a_column_recreated_as_another_type_is_so_once(windows: list[Window]) -> None:
    """Values written since are in the new column, independent of its place in later schema reads."""
    before = notes(**TEXT, **RANK, **NOTE)
    history, _ = follow(([observation(5, before)], read_at(6, before)), *windows)
    lives = [
        (version.type.code, version.since.micros, version.until is None)
        for version in history.tables["notes"].versions
        if version.name == "rank"
    ]
    assert [(code, is_live) for code, _, is_live in lives] == [("INT64", False), ("STRING", True)]
    assert lives[-1][1] == 8
