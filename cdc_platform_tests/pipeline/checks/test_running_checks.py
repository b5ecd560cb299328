"""Checks on what continuous running is about to publish."""

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import CheckFailed, SourceUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.last_results import load_results
from cdc_platform.model.base.stored_names import CHECK_RESULTS, LOG, RAW
from cdc_platform.pipeline.checks import log_checks
from cdc_platform.pipeline.checks import running_checks as guard_module
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, CheckResult
from cdc_platform.pipeline.checks.running_checks import CheckRunner
from cdc_platform.pipeline.cycle_loop import follow_source
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.lake.stored_lake import forget_metadata
from cdc_platform_tests.pipeline.bank import bank_pipeline, feed_cycle
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import CHECKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

LONG_S = 3600.0
CYCLE_CHECKS = {check.name for check in CHECKS if check.every_cycle}


def with_pause(pipeline: Pipeline, every_s: float | None) -> Pipeline:
    """Return a pipeline whose checks look so often."""
    return replace(pipeline, settings=replace(pipeline.settings, check_every_s=every_s))


def log_cycle(pipeline: Pipeline, spark: "SparkSession", number: int) -> None:
    """Bring one of the bank's cycles into the log."""
    feed_cycle(pipeline, number)
    order_changes(pipeline, spark)


def test_each_round_is_over_what_is_new(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Every check of a cycle is made at once, then, when it is time, on changes that no look has passed.

    How many of a round are over is known meanwhile.
    """
    pipeline = with_pause(bank_pipeline(session_lake), 0)
    heard: list[tuple[str, int, object]] = []
    counts: list[tuple[int | None, int | None]] = []

    def hear(check: Check, result: CheckResult, cycle: int) -> None:
        heard.append((check.name, cycle, result.facts.get("changes")))
        counts.extend((step.done, step.total) for step in pipeline.progress.reports() if step.unit)

    check_runner = CheckRunner(pipeline, spark, hear)
    for number in (1, 2):
        log_cycle(pipeline, spark, number)
        check_runner.run_due()
        merge_tables(pipeline, spark, pipeline.tables)
        publish_cut(pipeline)
    rests = CheckRunner(with_pause(pipeline, LONG_S), spark, hear)
    rests.run_due()
    rests.run_due()
    CheckRunner(with_pause(pipeline, None), spark, hear).run_due()
    assert {(name, cycle) for name in CYCLE_CHECKS for cycle in (1, 2)} == {call[:2] for call in heard}
    assert 3 * len(CYCLE_CHECKS) == len(heard)
    assert [changes for name, _, changes in heard if name == "exactly_once"] == [3, 5, 8]
    assert counts == 3 * [(done, len(CYCLE_CHECKS)) for done in range(len(CYCLE_CHECKS))]


@pytest.mark.parametrize("look", ["read_data_changes", "read_log"])
def test_another_process_may_extend_the_log_during_a_check(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """What it adds after the check has begun belongs to the next round."""
    pipeline = bank_pipeline(session_lake)
    log_cycle(pipeline, spark, 1)
    interrupt_once(monkeypatch, log_checks, look, lambda: log_cycle(replace(pipeline), spark, 2))
    result = log_checks.check_nothing_lost(pipeline, spark, EVERYTHING)
    assert (result.facts["records_read"], result.facts["records_in_log"]) == (3, 3)
    assert result.passed


def test_checks_take_turns(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are made at first, then each once in a pause, no two at one moment."""
    clock = SimpleNamespace(now_s=0)
    monkeypatch.setattr(guard_module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    names = ("one", "two", "three", "four")
    result = CheckResult(True, "fine", {})
    checks = tuple(Check(name, "cut", "", lambda *_: result) for name in names)
    monkeypatch.setattr(guard_module, "checks_of", lambda *_, **_options: checks)
    heard: list[str] = []
    paused = with_pause(bank_pipeline(session_lake), 40)
    check_runner = CheckRunner(paused, spark, lambda check, *_: heard.append(check.name))
    looks = []
    for clock.now_s in range(0, 90, 10):
        check_runner.run_due()
        looks.append(tuple(heard))
        heard.clear()
    assert [names, *((name,) for name in 2 * names)] == looks


def two_checks(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
    """Let rounds have a check that fails, and one that passes or cannot be made."""

    def run(*_: object) -> CheckResult:
        if error is not None:
            raise error
        return CheckResult(True, "fine", {})

    failed = CheckResult(False, "a finding", {})
    checks = (
        Check("fails", "cut", "", lambda *_: failed),
        Check("other", "cut", "", run),
    )
    monkeypatch.setattr(guard_module, "checks_of", lambda *_, **_options: checks)


def test_an_error_in_one_check_hides_no_finding(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a round had found before is in the lake."""
    pipeline = with_pause(bank_pipeline(session_lake), 0)
    two_checks(monkeypatch, SourceUnreachable("nobody answers"))
    with pytest.raises(SourceUnreachable):
        CheckRunner(pipeline, spark).run_due()
    assert [(each.name, each.has_failed) for each in load_results(pipeline.lake)] == [("fails", True)]


def test_a_result_that_is_not_stored_still_counts(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check's own failure is reported, not that of the table that shows it."""
    pipeline = with_pause(bank_pipeline(session_lake), 0)
    two_checks(monkeypatch)
    assert load_results(pipeline.lake) == ()
    forget_metadata(pipeline.lake.settings, pipeline.lake.system_namespace, CHECK_RESULTS)
    with pytest.raises(CheckFailed, match="a finding"):
        CheckRunner(pipeline, spark).run_due()


def test_what_fails_ends_every_start(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A log that fails a check ends the cycles before they add to it, published or not."""
    pipeline = with_pause(bank_pipeline(session_lake), 0)
    for number in (1, 2, 3):
        log_cycle(pipeline, spark, number)
        if number == 2:
            log = pipeline.lake.system_table(LOG)
            log.append(log.scan(row_filter="cycle = 2").to_arrow())
        cut = newest_cut(pipeline.lake)
        for _ in range(2 if number > 1 else 0):
            with pytest.raises(CheckFailed, match=r"`exactly_once`: .* repeated"):
                next(follow_source(pipeline, spark, lambda: True))
        assert cut == newest_cut(pipeline.lake)
        assert number == read_mark(pipeline.lake.system_table(RAW)).cycle
        # Another process publishes without looking.
        merge_tables(pipeline, spark, pipeline.tables)
        publish_cut(pipeline)
