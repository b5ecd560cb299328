"""Copies of tables whose columns change have the columns of their moment, for any state of the log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.lake.state.cuts import Cut, list_cuts
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.copying import copy
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.pipeline.evolving import EvolvingSource
from cdc_platform_tests.support.changing.copied_columns import (
    COPIED,
    END,
    KEYS,
    KNOWN,
    Action,
    add,
    drop,
    live,
    moment,
    read_until,
    retype,
    watch,
    write,
)
from cdc_platform_tests.support.pipelines import feed, rows_of, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def end_table(source: EvolvingSource) -> None:
    """Drop the table."""
    source.columns, source.rows = {}, {}


def make_table(source: EvolvingSource) -> None:
    """Recreate the table, with another column."""
    source.columns = {"a": "INT64"}


NOTES: Final[Mapping[int, tuple[Action, ...]]] = {
    2: (drop("renewed"), drop("third"), add("third", "INT64")),
    3: (drop("dropped"), retype("retyped"), retype("twice"), write(4)),
    4: (
        add("added", "INT64", 4),
        add("renewed", "INT64", 3),
        add("fleeting", "STRING", 3),
        drop("third"),
        add("third", "STRING", 6),
    ),
    6: (drop("fleeting"), retype("twice")),
    7: (add("fleeting", "INT64"), write(8)),
    8: (write(8, "2"),),
}
"""Changes to a table with rows, by step; its columns are named after their fate."""
DROPPED_AND_RECREATED: Final[Mapping[int, tuple[Action, ...]]] = {
    2: (end_table,),
    4: (make_table, write(4), write(6, "2")),
    8: (write(8), write(8, "3")),
}


def cycle(pipeline: Pipeline, spark: "SparkSession") -> Cut | None:
    """Do everything of a cycle but the reading, as a process that has just begun."""
    pipeline.forget_tables()
    copy_tables(pipeline, spark)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    return publish_cut(pipeline)


# A table that is recreated between two looks leaves no trace of it.
@pytest.mark.parametrize(
    ("lives", "reads"),
    [({"notes": NOTES, "recreated": DROPPED_AND_RECREATED}, (3, END)), ({"notes": NOTES}, (END,))],
)
def test_a_copy_has_the_columns_of_its_moment(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    lives: Mapping[str, Mapping[int, tuple[Action, ...]]],
    reads: tuple[int, ...],
) -> None:
    """Copied columns are right for any state of the log when the copy is planned and while it runs."""
    sources = [live(name, actions) for name, actions in lives.items()]
    pipeline = watch(session_lake, *sources)
    order_changes(pipeline, spark)
    with monkeypatch.context() as patch:
        patch.setattr(copy, "copy_chunks", _die)
        with pytest.raises(KeyboardInterrupt):
            copy_tables(pipeline, spark)
    for step in reads:
        read_until(pipeline, step, *sources)
        cycle(pipeline, spark)
    cycles = (publish_cut(pipeline) if turn == 0 else cycle(pipeline, spark) for turn in range(3))
    cut = next(cut for cut in cycles if cut is not None and len(cut.tables) == len(sources))

    assert {moment(COPIED)} == {plan.position_micros for plan in load_plans(pipeline.lake).values()}
    for source in sources:
        assert_rows(pipeline, source, cut)
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def _die(*_args: object) -> None:
    raise KeyboardInterrupt


def assert_rows(pipeline: Pipeline, source: EvolvingSource, cut: Cut) -> None:
    """Compare a table at a cut with its source, in the columns that this had then."""
    expected = source.typed_rows_at(cut.position_micros)
    names = ["id", *source.state_at(cut.position_micros)[0]]
    rows = rows_of(pipeline, source.name, cut.tables[source.name])
    actual = [{name: row.get(name, "no such column") for name in names} for row in rows]
    assert (source.name, expected) == (source.name, sorted(actual, key=lambda row: int(str(row["id"]))))


def test_a_table_is_copied_though_nothing_changes_any_more(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """No record names the added column; a copy that starts over has it, with all values."""
    source = live("notes", {3: (add("added", "INT64", 6), retype("retyped"))})
    pipeline = watch(session_lake, source)
    fake = source_of(pipeline)
    order_changes(pipeline, spark)
    fake.plans.expiring, fake.now_micros = {"notes"}, moment(KNOWN + 1) + 1
    assert copy_tables(pipeline, spark).rows == len(KEYS) - 1
    fake.now_micros = moment(COPIED) + 1
    feed(pipeline, moment(END))
    for _ in range(3):
        cycle(pipeline, spark)

    assert_rows(pipeline, source, list_cuts(pipeline.lake)[-1])
    assert "added" in {column.name for column in pipeline.table("notes").columns}
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
