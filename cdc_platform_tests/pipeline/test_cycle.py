"""The steps of a cycle, run again, interrupted, alone and out of step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest

from cdc_platform.errors import CommitConflict, CutNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, read_mark
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.merging import build
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publication
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.reading.read import read_windows
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema import table_ddl
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    bank_pipeline,
    expected_balances,
    feed_cycle,
    feed_next,
    opening,
)
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    TRANSFERS,
    feed,
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


class Killed(BaseException):
    """Stands for the end of a process: nothing may catch it."""


STEPS: dict[str, Step] = {
    "trace": lambda pipeline, _spark: trace_lineage(pipeline),
    "order": order_changes,
    "merge accounts": lambda pipeline, spark: merge_tables(pipeline, spark, [pipeline.table("accounts")]),
    "merge transfers": lambda pipeline, spark: merge_tables(pipeline, spark, [pipeline.table("transfers")]),
    "publish": lambda pipeline, _spark: publish_cut(pipeline),
}


def by_spark(pipeline: Pipeline) -> Pipeline:
    """Let Spark commit and merge what this process would, since it is little."""
    return merging_by_spark(reading_by_spark(pipeline))


@pytest.fixture(scope="module")
def bank(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """The bank after three cycles; each test continues from the state of the previous one."""
    pipeline = bank_pipeline(session_lake)
    for number in (1, 2, 3):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
        assert expected_balances(number) == balances(pipeline)
    return pipeline


def test_a_cut_holds_whole_transactions_of_all_tables(spark: "SparkSession", bank: Pipeline) -> None:
    """After each cycle the tables of the newest cut show one moment, and older cuts stay as they were.

    So it is whether this process or Spark merges, and a table that had no change yet is there, empty.
    """
    newest = run_steps(bank, spark).cut
    expected = {number: (number, number - 1) for number in (1, 2, 3)}
    for transfers, pipeline in enumerate((bank, by_spark(bank)), start=len(rows_of(bank, "transfers")) + 1):
        number = feed_next(pipeline)
        cut = run_steps(pipeline, spark)
        expected[cut.cut] = (number, transfers)
        assert cut.position_micros == START + number * SECOND + SECOND - 1
        assert expected_balances(number) == balances(pipeline)
        assert transfers == len(rows_of(pipeline, "transfers"))
    cuts = {cut.cut: cut for cut in list_cuts(bank.lake)}
    assert list(range(1, newest + 3)) == sorted(cuts)
    for cut_number, (number, transfers) in expected.items():
        tables = cuts[cut_number].tables
        assert expected_balances(number) == balances(bank, tables["accounts"])
        assert transfers == len(rows_of(bank, "transfers", tables["transfers"]))


def test_running_any_step_again_changes_nothing(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Each step recognises that it has been done: no snapshot, row or summary is new."""
    pipeline = bank_pipeline(session_lake)
    for number, stepped in enumerate((pipeline, by_spark(pipeline), pipeline), start=1):
        feed_cycle(pipeline, number)
        for name, step in STEPS.items():
            step(stepped, spark)
            before = state_of(pipeline)
            step(stepped, spark)
            assert before == state_of(pipeline), f"`{name}` of cycle {number} was not idempotent"
    before = state_of(pipeline)
    for name, step in STEPS.items():
        step(pipeline, spark)
        assert before == state_of(pipeline), f"`{name}` after the cut was not idempotent"


def test_an_idle_cycle_is_committed_without_spark(spark: "SparkSession", bank: Pipeline) -> None:
    """A cycle that found no change moves watermark and cut on, and starts no Spark job."""
    number = feed_next(bank)
    before = run_steps(bank, spark)
    until = START + (number + 1) * SECOND
    feed(bank, until)
    cut = run_steps(bank, cast("SparkSession", None))
    assert (before.cut + 1, until) == (cut.cut, cut.position_micros)
    assert expected_balances(number) == balances(bank)


def test_nobody_sees_a_table_before_its_cut(spark: "SparkSession", bank: Pipeline) -> None:
    """Merging works on the branch; `main` moves with the cut."""
    before = balances(bank)
    number = feed_next(bank)
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)
    assert before == balances(bank)
    assert expected_balances(number) == balances(bank, snapshot_id_of(bank, "accounts", BRANCH))


def test_a_cycle_killed_between_two_steps_is_finished_by_the_next(
    spark: "SparkSession", bank: Pipeline
) -> None:
    """After a process ended between two tables, the next run with more records produces the right ones.

    `test_crash_points.py` has deaths at all steps.
    """
    run_steps(bank, spark)
    logged = len(log_rows(bank))
    feed_next(bank)
    for name in ("trace", "order", "merge accounts"):
        STEPS[name](bank, spark)
    number = feed_next(bank)
    cut = run_steps(bank, spark)
    assert expected_balances(number) == balances(bank) == balances(bank, cut.tables["accounts"])
    # A transfer is two changes of accounts and one of transfers.
    assert logged + 2 * 3 == len(log_rows(bank))


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
        "count_actions": pipeline,
    }
    for commit, merger in halfway.items():
        with monkeypatch.context() as patch:
            patch.setattr(build, commit, _die)
            with pytest.raises(Killed):
                merge_tables(merger, spark, [merger.table("accounts")])
    run_steps(pipeline, spark)
    assert expected_balances(2) == balances(pipeline)


def test_main_is_moved_to_the_cut_by_the_next_run(
    spark: "SparkSession", bank: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends after the cut and before `main` moved loses nothing in any later cycle."""
    run_steps(bank, spark)
    before, transfers = balances(bank), len(rows_of(bank, "transfers"))
    feed_next(bank)
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)
    with monkeypatch.context() as patch:
        moved = iter([None])
        original = publication._move_mains  # noqa: SLF001  the crash lies inside the step
        patch.setattr(
            publication, "_move_mains", lambda *args: original(*args) if next(moved, _die) is None else _die()
        )
        with pytest.raises(Killed):
            publish_cut(bank)
    assert before == balances(bank)
    number = feed_next(bank)
    run_steps(bank, spark)
    assert expected_balances(number) == balances(bank)
    assert transfers + 2 == len(rows_of(bank, "transfers"))


def test_a_table_alone_catches_up_with_the_log(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """One table is brought up over several cycles at once; the cut waits for the other one."""
    pipeline = bank_pipeline(session_lake)
    for number in (1, 2, 3):
        feed_cycle(pipeline, number)
        order_changes(pipeline, spark)
    (outcome,) = merge_tables(pipeline, spark, [pipeline.table("accounts")])
    assert (outcome.cycle, outcome.appended, outcome.updated) == (3, 3, 0)
    table_ddl.ensure_table(pipeline, spark, pipeline.table("transfers"))
    with pytest.raises(CommitConflict, match="`transfers` is behind the log"):
        publish_cut(pipeline)
    run_steps(pipeline, spark)
    assert expected_balances(3) == balances(pipeline)
    assert len(rows_of(pipeline, "transfers")) == 2


def test_a_damaged_table_is_rebuilt_from_the_log(spark: "SparkSession", bank: Pipeline) -> None:
    """From nothing or from an older cut, the table is rebuilt and published with its own cut."""
    run_steps(bank, spark)
    for at_cut in (None, 2):
        undamaged, cycle = balances(bank), read_mark(bank.lake.system_table(RAW)).cycle
        spark.sql(f"DELETE FROM {bank.lake.spark_table('accounts')} WHERE id = 1")
        assert undamaged != balances(bank)
        newest = list_cuts(bank.lake)[-1].cut
        outcome = rebuild_table(bank, spark, "accounts", at_cut)
        cut = list_cuts(bank.lake)[-1]
        assert (newest + 1, cycle, outcome.snapshot_id) == (cut.cut, cut.cycle, cut.tables["accounts"])
        assert undamaged == balances(bank) == balances(bank, cut.tables["accounts"])
        before = state_of(bank)
        run_steps(bank, spark)
        assert before == state_of(bank)
        number = feed_next(bank)
        run_steps(bank, spark)
        assert expected_balances(number) == balances(bank)
    with pytest.raises(CutNotFound, match="No cut has this number: 777"):
        rebuild_table(bank, spark, "accounts", 777)


def test_a_whole_cycle_reads_the_source_once(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A cycle plans by the source's clock, reads its windows, and ends with a cut at their end."""
    pipeline = bank_pipeline(session_lake)
    source = source_of(pipeline)
    source.now_micros = START + SECOND
    requests: list[tuple[int, tuple[ReadWindow, ...]]] = []

    def answer(cycle: int, windows: "tuple[ReadWindow, ...]") -> list[RawRow]:
        requests.append((cycle, tuple(windows)))
        rows = [opening(7, 70, START + 5), *(window_row(planned, records=1) for planned in windows)]
        return [{**row, "cycle": cycle} for row in rows]

    source.answer = cast("Callable[..., list[RawRow]]", answer)
    outcome = run_cycle(pipeline, spark)
    assert [(1, (ReadWindow("", START - 1, START + SECOND - 1),))] == requests
    assert (outcome.cycle, outcome.cut.position_micros if outcome.cut else None) == (1, START + SECOND - 1)
    assert balances(pipeline) == {7: 70}
    again = read_windows(pipeline, spark)
    assert (again.cycle, again.committed) == (1, False)
    assert read_mark(pipeline.lake.system_table(LOG)).cycle == 1


def test_the_source_gets_a_column(spark: "SparkSession", bank: Pipeline) -> None:
    """A column that the source has got since is added to the table, NULL in older rows."""
    wider = table(
        "accounts", {"id": "INT64"}, {"owner": "STRING(MAX)", "balance": "INT64", "tier": "STRING(9)"}
    )
    source_of(bank).schemas = (wider, TRANSFERS)
    number = feed_next(bank)
    run_steps(bank, spark)
    assert {None} == {row["tier"] for row in rows_of(bank, "accounts")}
    assert expected_balances(number) == balances(bank)


def _die(*_args: object, **_kwargs: object) -> None:
    raise Killed
