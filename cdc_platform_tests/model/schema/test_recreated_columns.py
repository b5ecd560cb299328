"""Columns that were dropped and added again as they were: what tells of it, and what does not."""

import pytest

from cdc_platform.model.schema.evolution import fold_history
from cdc_platform.model.schema.exclusions import late_columns
from cdc_platform.model.schema.schema_events import SchemaChange
from cdc_platform.model.schema.schema_reads import Look
from cdc_platform_tests.model.schema_windows import Window, changes, follow, look, notes, sighting

TEXT, RANK, NOTE = {"text": "STRING(9)"}, {"rank": "INT64"}, {"note": "STRING(9)"}
FORMER: Window = ([sighting(5, notes(**TEXT, **RANK))], look(6, notes(**TEXT, **RANK)))
RECREATED = notes(**RANK, **TEXT)
"""`text` was dropped and added again: it stands behind `rank` now."""


@pytest.mark.parametrize(
    ("windows", "gone_micros", "added_micros"),
    [
        # a cycle without it in between
        ([([], look(9, notes(**RANK))), ([sighting(11, RECREATED)], look(12, RECREATED))], 9, 11),
        # the whole row of an update lacks it, in one and the same cycle
        (
            [
                (
                    [sighting(8, notes(**RANK), is_sure=True), sighting(11, RECREATED)],
                    look(12, RECREATED),
                )
            ],
            8,
            11,
        ),
        ([([sighting(8, notes(**RANK), is_sure=True)], look(12, notes(**RANK, **TEXT)))], 8, 12),
        # nothing but its place
        ([([sighting(8, RECREATED)], look(12, RECREATED))], 8, 8),
        ([([], look(12, RECREATED))], 12, 12),
        # a record of it alone tells by its ordinal alone
        (
            [([sighting(7, notes(**TEXT), is_whole=False), sighting(8, RECREATED)], look(12, RECREATED))],
            8,
            8,
        ),
        # with a new column ahead of it, after cycles in which nobody looked
        (
            [([], None), ([], look(9, notes(**RANK, **NOTE, **TEXT)))],
            9,
            9,
        ),
        # added again as a type to which Spanner would convert the former one
        ([([], look(9, notes(**RANK, text="BYTES(9)")))], 9, 9),
    ],
)
def test_a_column_recreated_as_it_was_has_no_older_values(
    windows: list[Window], gone_micros: int, added_micros: int
) -> None:
    """It is another column of the same name: the former one is set aside, and nothing is converted."""
    history, events = follow(FORMER, *windows)
    known = history.tables["notes"]
    (former, newer) = (version for version in known.versions if version.name == "text")
    assert (former.lake_name, newer.lake_name, known.conversions_after(0)) == ("text__string", "text", ())
    assert (SchemaChange.COLUMN_DROPPED, "text", gone_micros) in changes(events)
    assert (SchemaChange.COLUMN_ADDED, "text", added_micros) in changes(events)
    assert former.until is not None
    assert (former.until.micros, newer.since.micros) == (gone_micros, added_micros)
    assert fold_history(events).tables == history.tables


@pytest.mark.parametrize(
    "windows",
    [
        # a column ahead of it was dropped
        [([sighting(8, notes(**TEXT))], look(9, notes(**TEXT)))],
        # another one was added behind it, and seen by records at first
        [
            (
                [sighting(8, notes(**TEXT, **RANK, **NOTE))],
                look(9, notes(**TEXT, **RANK, **NOTE), is_exact=False),
            ),
            ([], look(12, notes(**TEXT, **RANK, **NOTE))),
        ],
        # a row was inserted without it
        [([sighting(8, notes(**RANK)), sighting(9, notes(**TEXT, **RANK))], look(9, notes(**TEXT, **RANK)))],
        # the source no longer tells what its schema was
        [([], look(9, RECREATED, is_exact=False))],
        # and tells it again
        [([], look(9, RECREATED, is_exact=False)), ([], look(12, RECREATED))],
        # what it was dropped and added with was the last one before, too: nothing tells of that
        [([], look(9, notes(**TEXT, **RANK)))],
        # a column of before was not watched
        [
            ([], Look(9, (notes(**TEXT, **RANK),), {"notes": ("note",)}, {})),
            ([], look(12, notes(**NOTE, **TEXT, **RANK))),
        ],
    ],
)
def test_a_column_that_may_be_the_same_is(windows: list[Window]) -> None:
    """Without proof that it was away, a column keeps its values."""
    history, events = follow(FORMER, *windows)
    assert [version.lake_name for version in history.tables["notes"].versions if version.name == "text"] == [
        "text"
    ]
    assert (SchemaChange.COLUMN_ADDED, "text") not in [found[:2] for found in changes(events)]


AWAY = [sighting(8, notes(**TEXT), is_sure=True)]
BACK = [sighting(10, notes(**TEXT, **RANK), is_sure=True)]


@pytest.mark.parametrize(
    ("windows", "gone_micros", "added_micros"),
    [
        # within one cycle, also as the last column of the table
        ([([*AWAY, *BACK], look(12, notes(**TEXT, **RANK)))], 8, 10),
        # seen again by a look only
        ([(AWAY, look(12, notes(**TEXT, **RANK)))], 8, 12),
        # with another type meanwhile
        ([(AWAY, look(12, notes(**TEXT, rank="STRING(9)")))], 8, 12),
        # a cycle in between
        (
            [
                (AWAY, Look(9, (notes(**TEXT),), {"notes": ("rank",)}, {})),
                (BACK, look(12, notes(**TEXT, **RANK))),
            ],
            8,
            10,
        ),
    ],
)
def test_a_column_that_left_the_stream_for_a_while_lacks_what_changed(
    windows: list[Window], gone_micros: int, added_micros: int
) -> None:
    """It comes back without the values of before, which may be outdated, and is said to lack them."""
    history, events = follow(FORMER, *windows, unwatched=["rank"])
    known = history.tables["notes"]
    assert (SchemaChange.COLUMN_DROPPED, "rank", gone_micros) in changes(events)
    assert (SchemaChange.COLUMN_ADDED, "rank", added_micros) in changes(events)
    assert late_columns(known) == ("rank",)
    assert "rank__int64" in {version.lake_name for version in known.versions}
    assert known.unwatched == ()
    assert fold_history(events).tables == history.tables


def test_a_column_that_is_watched_under_way_lacks_what_it_had() -> None:
    """Whole rows and copies of before lack it, and the source tells that it was there all the same."""
    for unwatched, late in (["rank"], ("rank",)), ([], ()):
        window = ([*AWAY, *BACK], look(12, notes(**TEXT, **RANK)))
        history, events = follow(window, unwatched=unwatched)
        assert (SchemaChange.COLUMN_ADDED, "rank", 10) in changes(events)
        assert late_columns(history.tables["notes"]) == late


def test_a_column_that_records_lack_is_kept_where_the_source_does_not_tell_why() -> None:
    """Its old versions are gone: nothing counts as dropped by absence alone."""
    window = ([*AWAY, *BACK], look(12, notes(**TEXT, **RANK)))
    history, events = follow(FORMER, window, is_exact=False)
    assert changes(events) == []
    assert late_columns(history.tables["notes"]) == ()


@pytest.mark.parametrize(
    "windows",
    [
        # a record that names it alone, and a look that shows that it has moved
        [([sighting(8, notes(rank="STRING(9)"), is_whole=False)], look(12, notes(**NOTE, rank="STRING(9)")))],
        # records are all that tells at first
        [
            ([sighting(8, notes(**TEXT, **NOTE, rank="STRING(9)"))], look(9, notes(**TEXT), is_exact=False)),
            ([], look(20, notes(**TEXT, **NOTE, rank="STRING(9)"))),
        ],
        [
            ([sighting(8, notes(**TEXT, **NOTE, rank="STRING(9)"))], None),
            ([], look(20, notes(**TEXT, **NOTE, rank="STRING(9)"))),
        ],
    ],
)
def test_a_column_recreated_as_another_type_is_so_once(windows: list[Window]) -> None:
    """What was written since is in the new column, whatever looks tell later of its place."""
    before = notes(**TEXT, **RANK, **NOTE)
    history, _ = follow(([sighting(5, before)], look(6, before)), *windows)
    lives = [
        (version.type.code, version.since.micros, version.until is None)
        for version in history.tables["notes"].versions
        if version.name == "rank"
    ]
    assert [(code, is_live) for code, _, is_live in lives] == [("INT64", False), ("STRING", True)]
    assert lives[-1][1] == 8
