"""The steps of a cycle, run again, interrupted, alone and out of step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest

from cdc_platform.errors import CutNotFound, LakeError
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, read_mark
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.merging import build
from cdc_platform.pipeline.merging.merge import merge_table, merge_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publish
from cdc_platform.pipeline.publishing.publish import publish_cut
from cdc_platform.pipeline.reading.read import read_windows
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema import table_ddl
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    bank_pipeline,
    expected_balances,
    feed_cycle,
    opening,
)
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    TRANSFERS,
    feed,
    found_table,
    log_rows,
    merging_by_spark,
    reading_by_spark,
    rows_of,
    run_steps,
    snapshot_id_of,
    source_of,
    state_of,
    window_row,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Step = Callable[[Pipeline, "SparkSession"], object]
Way = Callable[[Pipeline], Pipeline]


class Killed(BaseException):
    """Stands for the end of a process: nothing may catch it."""


STEPS: dict[str, Step] = {
    "trace": lambda pipeline, _spark: trace_lineage(pipeline),
    "order": order_changes,
    "merge accounts": lambda pipeline, spark: merge_table(pipeline, spark, "accounts"),
    "merge transfers": lambda pipeline, spark: merge_table(pipeline, spark, "transfers"),
    "publish": lambda pipeline, _spark: publish_cut(pipeline),
}


def by_spark(pipeline: Pipeline) -> Pipeline:
    """Let Spark commit and merge what this process would, since it is little."""
    return merging_by_spark(reading_by_spark(pipeline))


def unchanged(pipeline: Pipeline) -> Pipeline:
    """Let this process commit and merge what is little."""
    return pipeline


either_way = pytest.mark.parametrize("way", [unchanged, by_spark])


@either_way
def test_a_cut_holds_whole_transactions_of_all_tables(
    spark: "SparkSession", session_lake: LakeSettings, way: Way
) -> None:
    """After each cycle the tables of the newest cut show one moment, and older cuts stay as they were."""
    pipeline = way(bank_pipeline(session_lake))
    for number in (1, 2, 3):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
        assert expected_balances(number) == balances(pipeline)
        assert number - 1 == len(rows_of(pipeline, "transfers"))
    cuts = list_cuts(pipeline.lake)
    assert [cut.cut for cut in cuts] == [1, 2, 3]
    assert [START + n * SECOND + SECOND - 1 for n in (1, 2, 3)] == [cut.position_micros for cut in cuts]
    for number, cut in enumerate(cuts, 1):
        assert expected_balances(number) == balances(pipeline, cut.tables["accounts"])
        assert number - 1 == len(rows_of(pipeline, "transfers", cut.tables["transfers"]))


@either_way
def test_running_any_step_again_changes_nothing(
    spark: "SparkSession", session_lake: LakeSettings, way: Way
) -> None:
    """Each step recognises that it has been done: no snapshot, row or summary is new."""
    pipeline = way(bank_pipeline(session_lake))
    for number in (1, 2):
        feed_cycle(pipeline, number)
        for name, step in STEPS.items():
            step(pipeline, spark)
            before = state_of(pipeline)
            step(pipeline, spark)
            assert before == state_of(pipeline), f"`{name}` of cycle {number} was not idempotent"
    before = state_of(pipeline)
    for name, step in STEPS.items():
        step(pipeline, spark)
        assert before == state_of(pipeline), f"`{name}` after the cut was not idempotent"


def test_an_idle_cycle_is_committed_without_spark(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A cycle that found no change moves watermark and cut on, and starts no Spark job."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    until = START + 5 * SECOND
    feed(pipeline, until)
    cut = run_steps(pipeline, cast("SparkSession", None))
    assert (2, until) == (cut.cut, cut.position_micros)
    assert expected_balances(1) == balances(pipeline)


def test_nobody_sees_a_table_before_its_cut(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Merging works on the branch; `main` moves with the cut."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    feed_cycle(pipeline, 2)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    assert expected_balances(1) == balances(pipeline)
    assert expected_balances(2) == balances(pipeline, snapshot_id_of(pipeline, "accounts", BRANCH))


def test_a_cycle_killed_between_two_steps_is_finished_by_the_next(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Whatever steps an ended process has done, the next run with more records reaches the right tables."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    number = 1
    for done in range(len(STEPS) + 1):
        feed_cycle(pipeline, number + 1)
        for step in list(STEPS.values())[:done]:
            step(pipeline, spark)
        number += 2
        feed_cycle(pipeline, number)
        cut = run_steps(pipeline, spark)
        assert expected_balances(number) == balances(pipeline) == balances(pipeline, cut.tables["accounts"])
        assert number - 1 == len(rows_of(pipeline, "transfers"))
        assert 2 + 3 * number == len(log_rows(pipeline))


def test_a_merge_killed_halfway_is_begun_again(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a branch between the commits of a merge is never published."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    feed_cycle(pipeline, 2)
    order_changes(pipeline, spark)
    halfway = {
        "append_inserted": merging_by_spark(pipeline),
        "merge_existing": merging_by_spark(pipeline),
        "commit_merge": pipeline,
        "verify_attempt": pipeline,
    }
    for commit, merger in halfway.items():
        with monkeypatch.context() as patch:
            patch.setattr(build, commit, _die)
            with pytest.raises(Killed):
                merge_table(merger, spark, "accounts")
    run_steps(pipeline, spark)
    assert expected_balances(2) == balances(pipeline)


@pytest.mark.parametrize("has_more", [False, True])
def test_main_is_moved_to_the_cut_by_the_next_run(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, has_more: bool
) -> None:
    """A process that ends after the cut and before `main` moved loses nothing, whatever comes next."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    feed_cycle(pipeline, 2)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    with monkeypatch.context() as patch:
        moved = iter([None])
        original = publish._move_mains  # noqa: SLF001  the crash lies inside the step
        patch.setattr(
            publish, "_move_mains", lambda *args: original(*args) if next(moved, _die) is None else _die()
        )
        with pytest.raises(Killed):
            publish_cut(pipeline)
    assert expected_balances(1) == balances(pipeline)
    if has_more:
        feed_cycle(pipeline, 3)
    run_steps(pipeline, spark)
    assert expected_balances(3 if has_more else 2) == balances(pipeline)
    assert (2 if has_more else 1) == len(rows_of(pipeline, "transfers"))


def test_a_table_alone_catches_up_with_the_log(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """One table is brought up over several cycles at once; the cut waits for the other one."""
    pipeline = bank_pipeline(session_lake)
    for number in (1, 2, 3):
        feed_cycle(pipeline, number)
        order_changes(pipeline, spark)
    outcome = merge_table(pipeline, spark, "accounts")
    assert (outcome.cycle, outcome.appended, outcome.updated) == (3, 3, 0)
    table_ddl.ensure_table(pipeline, spark, pipeline.table("transfers"))
    with pytest.raises(LakeError, match="`transfers` is behind the log"):
        publish_cut(pipeline)
    run_steps(pipeline, spark)
    assert expected_balances(3) == balances(pipeline)
    assert len(rows_of(pipeline, "transfers")) == 2


def test_a_new_table_begins_with_the_log(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A table without any change is there, empty, and part of the cut."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    cut = run_steps(pipeline, spark)
    assert rows_of(pipeline, "transfers", cut.tables["transfers"]) == []


def test_a_damaged_table_is_rebuilt_from_the_log(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """From nothing or from an older cut, the table is rebuilt and published with a cut of its own."""
    pipeline = bank_pipeline(session_lake)
    for number in (1, 2, 3):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    for cycle, at_cut in ((3, None), (4, 2)):
        spark.sql(f"DELETE FROM {pipeline.lake.spark_table('accounts')} WHERE id = 1")
        assert expected_balances(cycle) != balances(pipeline)
        newest = list_cuts(pipeline.lake)[-1].cut
        outcome = rebuild_table(pipeline, spark, "accounts", at_cut)
        cut = list_cuts(pipeline.lake)[-1]
        assert (newest + 1, cycle, outcome.snapshot_id) == (cut.cut, cut.cycle, cut.tables["accounts"])
        assert expected_balances(cycle) == balances(pipeline) == balances(pipeline, cut.tables["accounts"])
        before = state_of(pipeline)
        run_steps(pipeline, spark)
        assert before == state_of(pipeline)
        feed_cycle(pipeline, cycle + 1)
        run_steps(pipeline, spark)
        assert expected_balances(cycle + 1) == balances(pipeline)


def test_a_rebuild_needs_a_cut_that_is_there(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A number that no cut has is refused."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    with pytest.raises(CutNotFound, match="No cut has this number: 7"):
        rebuild_table(pipeline, spark, "accounts", 7)


def test_a_whole_cycle_reads_the_source_once(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A cycle plans by the source's clock, reads its windows, and ends with a cut at their end."""
    pipeline = bank_pipeline(session_lake)
    source = source_of(pipeline)
    source.now_micros = START + SECOND
    asked: list[tuple[int, tuple[ReadWindow, ...]]] = []

    def answer(cycle: int, windows: "tuple[ReadWindow, ...]") -> list[RawRow]:
        asked.append((cycle, tuple(windows)))
        rows = [opening(7, 70, START + 5), *(window_row(planned, records=1) for planned in windows)]
        return [{**row, "cycle": cycle} for row in rows]

    source.answer = cast("Callable[..., list[RawRow]]", answer)
    outcome = run_cycle(pipeline, spark)
    assert [(1, (ReadWindow("", START - 1, START + SECOND - 1),))] == asked
    assert (outcome.cycle, outcome.cut.position_micros if outcome.cut else None) == (1, START + SECOND - 1)
    assert balances(pipeline) == {7: 70}
    again = read_windows(pipeline, spark)
    assert (again.cycle, again.committed) == (1, False)
    assert read_mark(pipeline.lake.system_table(LOG)).cycle == 1


def test_the_source_gets_a_column(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A column that the source has got since is added to the table, NULL in older rows."""
    from cdc_platform_tests.example_tables import table

    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    wider = table(
        "accounts", {"id": "INT64"}, {"owner": "STRING(MAX)", "balance": "INT64", "tier": "STRING(9)"}
    )
    source_of(pipeline).schemas = (wider, TRANSFERS)
    feed_cycle(pipeline, 2)
    run_steps(pipeline, spark)
    assert "tier" in found_table(pipeline, "accounts").schema().column_names
    assert expected_balances(2) == balances(pipeline)


def _die(*_args: object, **_kwargs: object) -> None:
    raise Killed
