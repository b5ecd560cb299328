"""Runs of the assets, as Dagster makes them, on an in-memory source."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from cdc_platform import resources
from cdc_platform.assets import platform
from cdc_platform.claims import CLAIM_TAG, pipeline_tag
from cdc_platform.errors import SourceUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import list_cuts, newest_cut
from cdc_platform.model.base.names import FRESH
from cdc_platform.model.base.progress_lines import report_lines
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.pipeline import cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import OrderOutcome, order_changes
from cdc_platform_tests.assets.bench import CYCLE_CHECKS, Bench, answer_with, open_bench, report
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    closing,
    expected_balances,
    feed_cycle,
    opening,
)
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import rows_of, run_steps, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.fixture
def bench(spark: "SparkSession", session_lake: LakeSettings) -> Iterator[Bench]:
    """A bench of the test's own."""
    with open_bench(spark, session_lake) as own:
        yield own


@dataclass(frozen=True)
class Whole:
    """The first run of all assets, on a bench that does nothing else."""

    bench: Bench
    result: dg.ExecuteInProcessResult


def run_first(bench: Bench) -> Whole:
    """Run all assets on a source that opens two accounts."""
    begun = source_of(bench.pipeline).first_micros
    answer_with(bench.pipeline, begun + SECOND, opening(1, 100, begun + 1), opening(2, 100, begun + 2))
    return Whole(bench, bench.run(bench.assets.all_keys))


@pytest.fixture(scope="module")
def whole(spark: "SparkSession", session_lake: LakeSettings) -> Iterator[Whole]:
    """The run that names its partitions, for tests that only look at it."""
    with open_bench(spark, session_lake) as own:
        yield run_first(own)


def materialized(result: dg.ExecuteInProcessResult) -> list[str]:
    """Return the assets that a run has materialised, in order."""
    return [
        event.asset_key.to_user_string().split("/")[-1]
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    ]


def plain(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    """Return metadata as plain values."""
    return {key: value.value for key, value in metadata.items()}


def assert_complete(run: Whole) -> None:
    """Assert that a run has read, ordered, merged and published, and made its checks."""
    assert run.result.success
    assert balances(run.bench.pipeline) == {1: 100, 2: 100}
    made = ["source", *(key.path[-1] for key in run.bench.assets.all_keys)]
    assert materialized(run.result) == made
    evaluations = run.result.get_asset_check_evaluations()
    # The source's clock is made up, so nothing is said of how fresh the tables are.
    passed = {evaluation.check_name for evaluation in evaluations if evaluation.passed} - {FRESH}
    assert passed == CYCLE_CHECKS


def test_all_assets_make_a_cycle(whole: Whole) -> None:
    """A run of everything reads, orders, merges and publishes."""
    assert_complete(whole)


def test_a_cycle_reports_numbers(whole: Whole) -> None:
    """Materialisations carry counts, positions and lags as numbers that the UI can plot."""
    metadata = {
        event.asset_key.path[-1]: plain(event.step_materialization_data.materialization.metadata)
        for event in whole.result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    assert metadata["raw_change_records"]["Lag of the partition (s)"] < 1
    assert metadata["partition_lineage"]["Partitions being read"] == 1
    assert "data:image/svg+xml;base64," in metadata["partition_lineage"]["Picture"]
    assert (metadata["change_log"]["Changes"], metadata["change_log"]["Changes in the log"]) == (2, "2")
    assert (metadata["accounts"]["Rows appended"], metadata["accounts"]["dagster/row_count"]) == (2, 2)
    columns = [(column.name, column.type) for column in metadata["accounts"]["dagster/column_schema"].columns]
    assert columns == [("id", "bigint"), ("owner", "string"), ("balance", "bigint")]
    cut = newest_cut(whole.bench.pipeline.lake)
    assert cut is not None
    assert metadata["cut"]["Cut"] == "1"
    assert metadata["cut"]["Lag of the newest cut (s)"] == cut.lag_s()


def test_a_run_claims_its_pipeline(whole: Whole) -> None:
    """A run writes its process into its tags before it does anything."""
    run = whole.bench.instance.get_run_by_id(whole.result.run_id)
    assert run is not None
    assert pipeline_tag(whole.bench.pipeline.name).items() <= run.tags.items()
    assert CLAIM_TAG in run.tags


def follow(bench: Bench) -> dg.ExecuteInProcessResult:
    """Run all assets, and further cycles for a while, on a source where every cycle finds an account."""
    begun = source_of(bench.pipeline).first_micros
    opened = iter(range(1, 1000))

    def answer(cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
        source_of(bench.pipeline).now_micros += SECOND
        rows = [opening(next(opened), 100, window.start_exclusive_micros + 1) for window in windows]
        return [
            {**row, "cycle": cycle} for row in (*rows, *(report(window, len(rows)) for window in windows))
        ]

    source_of(bench.pipeline).now_micros = begun + SECOND
    source_of(bench.pipeline).answer = answer
    return bench.run(bench.assets.all_keys, config=bench.cut_config(0.5), names_partitions=False)


def test_a_run_follows_the_source(bench: Bench) -> None:
    """With `follow_s` a run makes further cycles, logs each as materialisations, and checks them.

    It need not name the partitions: the first cycle logs each one as well as the asset.
    """
    result = follow(bench)
    assert result.success
    assert {"root"} == bench.instance.get_materialized_partitions(bench.assets.raw)
    cuts = list_cuts(bench.pipeline.lake)
    assert len(cuts) > 1
    assert len(balances(bench.pipeline)) == len(cuts)
    assert materialized(result).count("accounts") == len(cuts)
    assert materialized(result).count("raw_change_records") == len(cuts) + 1
    evaluations = result.get_asset_check_evaluations()
    assert len(CYCLE_CHECKS) * len(cuts) < len(
        [evaluation for evaluation in evaluations if evaluation.passed]
    )
    assert unsynced(bench) == {}


def unsynced(bench: Bench) -> dict[str, list[str]]:
    """Return why Dagster calls assets Unsynced, by asset."""
    graph = bench.definitions.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(bench.instance, graph, LoadingContextForTest(bench.instance))
    causes = {key.path[-1]: resolver.get_stale_causes(key) for key in bench.assets.all_keys}
    return {name: [cause.reason for cause in stale] for name, stale in causes.items() if stale}


def test_each_table_has_results_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with full checks reports the result of each table, and its progress; the total one fails it."""
    monkeypatch.setattr(resources, "report_lines", partial(report_lines, every_s=0.05))
    begun = source_of(bench.pipeline).first_micros
    answer_with(bench.pipeline, begun + SECOND, opening(1, 100, begun + 1))
    # The source says that it has no rows at all.
    result = bench.run(bench.assets.all_keys, has_full_checks=True)
    assert not result.success
    results = {
        (evaluation.asset_key.path[-1], evaluation.check_name): evaluation.passed
        for evaluation in result.get_asset_check_evaluations()
    }
    names = ("keys_unique", "equals_log", "equals_source")
    assert [results["accounts", name] for name in names] == [True, True, False]
    assert [results["transfers", name] for name in names] == [True, True, True]
    assert not results["cut", "tables_equal_source"]
    lines = [entry.user_message for entry in bench.instance.all_logs(result.run_id)]
    assert any(re.match(r"checks: 1 of \d checks .*; check \w+: ", line) for line in lines), lines
    # No check was planned with the run, which would have hidden its last result.
    key = dg.AssetCheckKey(bench.assets.table("accounts"), "equals_source")
    (record,) = bench.instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    assert record.status is AssetCheckExecutionRecordStatus.FAILED


def test_a_check_of_one_table_looks_at_that_table_alone(whole: Whole) -> None:
    """Who asks for one table's check in the UI gets one result, and no other table is read for it."""
    key = dg.AssetCheckKey(whole.bench.assets.table("accounts"), "equals_log")
    job = whole.bench.definitions.resolve_job_def(f"{whole.bench.pipeline.name}_sync")
    part = job.get_subset(asset_selection=set(), asset_check_selection={key})
    result = part.execute_in_process(instance=whole.bench.instance)
    (evaluation,) = result.get_asset_check_evaluations()
    assert (key, True) == (evaluation.asset_check_key, evaluation.passed)


def terminate(bench: Bench, *, is_forced: bool = False) -> None:
    """Let Dagster terminate the bench's run, whose process loses the interruption."""
    (run,) = bench.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    bench.instance.report_run_canceling(run)
    if is_forced:
        bench.instance.report_run_canceled(run)


def status_of(bench: Bench, result: dg.ExecuteInProcessResult) -> dg.DagsterRunStatus:
    """Return the status of a run that has ended."""
    run = bench.instance.get_run_by_id(result.run_id)
    assert run is not None
    return run.status


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_terminated_run_ends_before_its_next_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, is_forced: bool
) -> None:
    """Dagster would continue after a step in which Py4J has lost the interruption."""

    def order_and_terminate(pipeline: Pipeline, spark: "SparkSession") -> OrderOutcome:
        outcome = order_changes(pipeline, spark)
        terminate(bench, is_forced=is_forced)
        return outcome

    monkeypatch.setattr(platform, "order_changes", order_and_terminate)
    whole = run_first(bench)
    assert dg.DagsterRunStatus.CANCELED is status_of(bench, whole.result)
    assert "accounts" not in materialized(whole.result)
    assert newest_cut(bench.pipeline.lake) is None


def test_a_terminated_run_makes_no_further_cycle(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle in which the interruption became an error of a library is not tried again."""

    def terminate_and_fail(_pipeline: Pipeline, _spark: "SparkSession") -> OrderOutcome:
        terminate(bench)
        problem = "it does not answer"
        raise SourceUnreachable(problem)

    monkeypatch.setattr(cycle, "order_changes", terminate_and_fail)
    assert dg.DagsterRunStatus.CANCELED is status_of(bench, follow(bench))
    assert [cut.cycle for cut in list_cuts(bench.pipeline.lake)] == [1]


def test_a_failing_check_ends_the_following(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later cycle of a run that fails a check is not published, and the failure is the check's newest."""

    def order_and_damage(pipeline: Pipeline, spark: "SparkSession") -> OrderOutcome:
        outcome = order_changes(pipeline, spark)
        _damage_log(pipeline)
        return outcome

    monkeypatch.setattr(cycle, "order_changes", order_and_damage)
    assert not follow(bench).success
    assert [cut.cycle for cut in list_cuts(bench.pipeline.lake)] == [1]
    once = dg.AssetCheckKey(bench.assets.log, "exactly_once")
    history = bench.instance.event_log_storage.get_asset_check_execution_history(once, limit=5)
    assert [record.status for record in history] == [AssetCheckExecutionRecordStatus.FAILED]


def test_what_a_check_has_refused_no_other_run_publishes(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A run without the log and its checks, or that rebuilds a table, or repeats steps, checks them first.

    Where the log has a change twice, a run of everything fails, too, and readers keep the last right cut.
    """
    with open_bench(spark, session_lake, accounts=TableOptions(history=True)) as bench:
        begun = source_of(bench.pipeline).first_micros
        answer_with(bench.pipeline, begun + SECOND, opening(1, 100, begun + 1))
        cycle.run_cycle(bench.pipeline, bench.spark)
        answer_with(bench.pipeline, begun + 2 * SECOND, opening(2, 100, begun + SECOND + 1))
        assert bench.run([bench.assets.raw, bench.assets.lineage, bench.assets.log]).success
        _damage_log(bench.pipeline)
        account, history, transfers = map(bench.assets.table, ("accounts", "accounts__history", "transfers"))
        assert_refused(bench, [account, history, transfers, bench.assets.cut])
        rebuilds = ((account, {"rebuild": True}), (history, {"rebuild": True}), (history, {"at_cut": 1}))
        for key, config in rebuilds:
            assert_refused(bench, [key], {key.to_python_identifier(): config})
        assert not bench.repeat([account, history, transfers, bench.assets.cut]).success
        assert balances(bench.pipeline) == {1: 100}
        answer_with(bench.pipeline, begun + 3 * SECOND, opening(3, 100, begun + 2 * SECOND + 1))
        result = bench.run(bench.assets.all_keys, has_full_checks=True)
        assert not result.success
        assert "cut" not in materialized(result)
        assert balances(bench.pipeline) == {1: 100}


def assert_refused(
    bench: Bench, keys: Sequence[dg.AssetKey], config: Mapping[str, Any] | None = None
) -> None:
    """Assert that a run of some assets fails by a check of the log, and publishes nothing."""
    result = bench.run(keys, config or {})
    assert not result.success
    assert balances(bench.pipeline) == {1: 100}
    evaluations = result.get_asset_check_evaluations()
    assert "exactly_once" in {each.check_name for each in evaluations if not each.passed}


def _damage_log(pipeline: Pipeline) -> None:
    """Add a change to the log that was there already, as a repeated append would."""
    log = pipeline.lake.system_table(LOG)
    log.append(log.scan().to_arrow())


def test_one_table_alone_catches_up_unseen(bench: Bench) -> None:
    """A single table follows the log on its branch; readers see it with the next cut.

    The cut merges what no step of the run has: a table may be left out, or be newer than the code location
    that planned the run.
    """
    feed_cycle(bench.pipeline, 1)
    assert bench.run([bench.assets.lineage, bench.assets.log]).success
    result = bench.run([bench.assets.table("accounts")])
    assert (result.success, rows_of(bench.pipeline, "accounts")) == (True, [])
    assert bench.run([bench.assets.table("transfers"), bench.assets.cut]).success
    assert balances(bench.pipeline) == expected_balances(1)
    feed_cycle(bench.pipeline, 2)
    assert bench.run([bench.assets.lineage, bench.assets.log]).success
    result = bench.run([bench.assets.table("transfers"), bench.assets.cut])
    assert result.success
    assert balances(bench.pipeline) == expected_balances(2)
    assert materialized(result) == ["transfers", "accounts", "cut"]


def test_a_run_setting_rebuilds_a_table(bench: Bench) -> None:
    """`rebuild` builds a table again from the log, and the next cut publishes the same rows."""
    for number in (1, 2):
        feed_cycle(bench.pipeline, number)
        run_steps(bench.pipeline, bench.spark)
    first = newest_cut(bench.pipeline.lake)
    assert first is not None
    key = bench.assets.table("accounts")
    for config in ({"rebuild": True}, {"rebuild": True, "at_cut": first.cut - 1}):
        rebuilt = bench.run([key, bench.assets.cut], config={key.to_python_identifier(): config})
        assert rebuilt.success
        assert balances(bench.pipeline) == expected_balances(2)
    last = newest_cut(bench.pipeline.lake)
    assert last is not None
    assert last.tables["accounts"] != first.tables["accounts"]


def test_an_empty_cycle_publishes_all_the_same(bench: Bench) -> None:
    """A run that finds nothing new succeeds, and moves the position of the cut."""
    begun = source_of(bench.pipeline).first_micros
    answer_with(bench.pipeline, begun + SECOND, opening(1, 100, begun + 1), closing(1, begun + 2))
    cycle.run_cycle(bench.pipeline, bench.spark)
    answer_with(bench.pipeline, begun + 2 * SECOND)
    assert bench.run(bench.assets.all_keys).success
    cut = newest_cut(bench.pipeline.lake)
    assert cut is not None
    assert (cut.position_micros, balances(bench.pipeline)) == (begun + 2 * SECOND, {})


def test_a_run_begins_with_the_last_results(whole: Whole) -> None:
    """Dagster hides the results of an earlier run, so a run repeats them, with the time they are of."""
    result = whole.bench.run([whole.bench.assets.raw])
    assert result.success
    repeated = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert {*CYCLE_CHECKS, "fresh"} <= repeated.keys()
    assert "Checked at" in repeated["exactly_once"].metadata
    key = dg.AssetCheckKey(whole.bench.assets.log, "exactly_once")
    newest, _ = whole.bench.instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    assert (result.run_id, AssetCheckExecutionRecordStatus.SUCCEEDED) == (newest.run_id, newest.status)
