"""Freshness: the lag of the newest cut against the bounds of the YAML, reported without a run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.checks.freshness import (
    REPORT_EVERY_S,
    Evaluation,
    Freshness,
    build_freshness_check,
    build_freshness_sensor,
    freshness_results,
    report,
    save_all_fresh,
)
from cdc_platform.claims import pipeline_tag
from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import Cut, append_cut, newest_cut
from cdc_platform.lake.state.last_results import load_results
from cdc_platform.lake.state.read_progress import left_since, save_poll
from cdc_platform.metadata import WAITING, describe_cut
from cdc_platform.model.base.names import FRESH
from cdc_platform.model.base.stored_names import CHECK_RESULTS, RAW
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import open_lake, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sensors import RunSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.run_origins import ORIGIN
from cdc_platform_tests.support.pipelines import append_raw

SECOND = 1_000_000
POSITION = 1_800_000_000 * SECOND
ASSETS = PipelineAssets("bank", ("accounts", "transfers"))
EVENTS = replace(ASSETS, capabilities=DatastreamSettings("files").capabilities)
RUNNING = RunSettings(fresh_warn_s=60, fresh_fail_s=300)


def publish(settings: PipelineSettings, *tables: str) -> None:
    """Publish a cut that is five seconds behind."""
    cut = Cut(1, POSITION, 0, dict.fromkeys(tables, 1), POSITION + 5 * SECOND)
    append_cut(Lake(settings.lake, settings.name), cut)


@pytest.fixture
def bank(tmp_path: Path) -> PipelineSettings:
    """A pipeline whose lake has a cut of one of its two tables; its source is out of reach."""
    settings = PipelineSettings("bank", SpannerSettings("p", "i", "d", "s"), LakeSettings(str(tmp_path)))
    publish(settings, "accounts")
    return settings


def results_of(outcome: dg.SensorResult) -> dict[str, tuple[bool, str]]:
    """Return whether each table passed, and how severe it is if not."""
    results = {}
    for event in outcome.asset_events or []:
        assert isinstance(event, dg.AssetCheckEvaluation)
        results[event.asset_key.path[-1]] = (event.passed, event.severity.value)
    return results


@pytest.mark.parametrize(
    ("lag_s", "expected"), [(59, (True, "WARN")), (61, (False, "WARN")), (301, (False, "ERROR"))]
)
def test_the_lag_decides(bank: PipelineSettings, lag_s: int, expected: tuple[bool, str]) -> None:
    """A table passes, warns or fails by how far the newest cut is behind this machine's clock."""
    outcome = report(ASSETS, bank, RUNNING, Evaluation(), POSITION + lag_s * SECOND)
    assert expected == results_of(outcome)["accounts"]
    passed = f"Reported the check `fresh` of 2 tables: {int(expected[0])} passed."
    assert dg.SkipReason(passed) == outcome.skip_reason


@pytest.mark.parametrize(
    ("lag_s", "expected"),
    [
        (2.5, "2.5 s behind. The check warns above 1 min and fails above 5 min."),
        (317, "5 min 17 s behind. The check warns above 1 min and fails above 5 min."),
    ],
)
def test_a_result_has_the_lag_as_other_views_show_it(
    bank: PipelineSettings, lag_s: float, expected: str
) -> None:
    """The status page, `status` and Dagster print the same lag in the same units, next to its bounds."""
    first, *_ = freshness_results(ASSETS, RUNNING, Freshness(newest_cut(Lake(bank.lake, bank.name)), lag_s))
    assert expected == first.description


def test_a_table_in_no_cut_warns(bank: PipelineSettings) -> None:
    """What readers cannot see yet is not fresh, and no failure either."""
    assert results_of(report(ASSETS, bank, RUNNING, Evaluation(), POSITION))["transfers"] == (
        False,
        "WARN",
    )


def test_the_same_results_are_reported_now_and_then(bank: PipelineSettings) -> None:
    """Only a change is reported at once, so that the event log does not fill up."""
    first = report(ASSETS, bank, RUNNING, Evaluation(), POSITION + SECOND)
    for later_s, is_reported in ((30, False), (90, True), (REPORT_EVERY_S + 2, True)):
        later = report(ASSETS, bank, RUNNING, Evaluation(first.cursor), POSITION + int(later_s * SECOND))
        assert is_reported == bool(results_of(later)), later_s


@pytest.mark.parametrize("cursor", ["", "{}", "reset", '{"reported_s": "now"}'])
def test_a_cursor_that_a_user_has_set_is_no_error(bank: PipelineSettings, cursor: str) -> None:
    """Otherwise each further evaluation would fail; the next one reports all results."""
    outcome = report(ASSETS, bank, RUNNING, Evaluation(cursor), POSITION + SECOND)
    assert results_of(outcome).keys() == {"accounts", "transfers"}
    again = report(ASSETS, bank, RUNNING, Evaluation(outcome.cursor), POSITION + 2 * SECOND)
    assert str(again.skip_reason) == "SkipReason(skip_message='The results are those of the last report.')"


def test_the_lake_gets_a_result_when_it_changes(bank: PipelineSettings) -> None:
    """The status page shows it without Dagster; repetitions do not fill the lake of a silent source."""
    lake, cursor = Lake(bank.lake, bank.name), None
    snapshots = []
    for lag_s in (1, REPORT_EVERY_S + 2, 2 * REPORT_EVERY_S + 4):
        outcome = report(ASSETS, bank, RUNNING, Evaluation(cursor), POSITION + int(lag_s * SECOND))
        assert results_of(outcome)
        cursor = outcome.cursor
        stored = {result.asset: (result.passed, result.has_failed) for result in load_results(lake)}
        assert stored["bank/accounts"] == (lag_s < 60, lag_s > 300)
        assert stored["bank/transfers"] == (False, lag_s > 300)
        snapshots.append(lake.system_table(CHECK_RESULTS).metadata.current_snapshot_id)
    assert snapshots[0] != snapshots[1] == snapshots[2]


def test_a_result_that_a_run_stored_meanwhile_is_replaced(bank: PipelineSettings) -> None:
    """A run that catches up stores a failure, and passes again between two evaluations of the sensor."""
    lake = Lake(bank.lake, bank.name)
    before = report(ASSETS, bank, RUNNING, Evaluation(), POSITION + SECOND)
    late = freshness_results(ASSETS, RUNNING, Freshness(newest_cut(lake), 301.0))
    save_all_fresh(lake, list(late))
    assert any(result.has_failed for result in load_results(lake))
    report(ASSETS, bank, RUNNING, Evaluation(before.cursor), POSITION + 2 * SECOND)
    assert not any(result.has_failed for result in load_results(lake))


def test_without_bounds_no_former_result_stays(bank: PipelineSettings) -> None:
    """A failure must not outlive the setting that it comes from."""
    report(ASSETS, bank, RUNNING, Evaluation(), POSITION + 301 * SECOND)
    unbounded = replace(RUNNING, fresh_warn_s=None, fresh_fail_s=None)
    report(ASSETS, bank, unbounded, Evaluation(), POSITION + 302 * SECOND)
    assert load_results(Lake(bank.lake, bank.name)) == ()


@pytest.fixture
def files(tmp_path: Path) -> PipelineSettings:
    """A pipeline of files that has a cut, and has read nothing yet, so there is something to read."""
    (tmp_path / "files").mkdir()
    source = DatastreamSettings(str(tmp_path / "files"))
    settings = PipelineSettings("bank", source, LakeSettings(str(tmp_path / "lake")))
    publish(settings, "accounts")
    return settings


def test_events_are_late_when_they_wait(files: PipelineSettings) -> None:
    """What a source of events has is late from when it was first seen, not from its last event."""
    settings, seen_micros = files, POSITION + 3600 * SECOND
    seen = report(EVENTS, settings, RUNNING, Evaluation(), seen_micros)
    assert results_of(seen)["accounts"] == (True, "WARN")
    assert json.loads(str(seen.cursor))["news_since_micros"] == seen_micros
    waiting = report(EVENTS, settings, RUNNING, Evaluation(seen.cursor), seen_micros + 70 * SECOND)
    assert results_of(waiting)["accounts"] == (False, "WARN")
    first, *_ = waiting.asset_events or []
    assert first.metadata["Time that events wait to be read (s)"].value == 70


def freshness_of(lake: Lake, cut: Cut) -> Freshness:
    """Return the freshness of a cut right after its cycle."""
    return Freshness.after_cycle(cut, left_since(lake, cut), delivers_events=True)


def leave(files: PipelineSettings, since_micros: int | None) -> Cut:
    """Publish a cut of a cycle that has left data of a moment, if one is given."""
    pipeline = open_pipeline(files)
    cycle = read_mark(pipeline.lake.system_table(RAW)).cycle + 1
    append_raw(pipeline, cycle, [], POSITION + cycle, since_micros)
    cut = Cut(cycle + 1, POSITION + cycle, cycle, {"accounts": 1}, POSITION + 5 * SECOND)
    append_cut(pipeline.lake, cut)
    return cut


def test_events_that_a_cycle_has_left_are_late(files: PipelineSettings) -> None:
    """A cycle that reads a part of a backlog is behind by the age of the oldest rest, until one reads all."""
    lake = open_lake(files)
    before = freshness_of(lake, leave(files, None))
    assert (before.lag_s, before.is_part) == (0.0, False)
    part = freshness_of(lake, leave(files, clock_micros() - 50 * SECOND))
    assert (50.0 <= part.lag_s < 60.0, part.is_part) == (True, True)
    leave(files, POSITION - 400 * SECOND)
    late = report(EVENTS, files, RUNNING, Evaluation(), POSITION)
    assert results_of(late)["accounts"] == (False, "ERROR")
    first, *_ = late.asset_events or []
    assert str(first.description).startswith("6 min 40 s behind, as the newest cycle has read only a part of")
    assert freshness_of(lake, leave(files, None)).lag_s == 0.0


def test_events_that_have_gone_from_the_source_do_not_wait(files: PipelineSettings) -> None:
    """If the files that a cycle left are deleted, no other cycle follows: the next poll ends their wait."""
    lake, cut = open_lake(files), leave(files, POSITION - 400 * SECOND)
    save_poll(lake, cut.published_micros, keep_metadata_s=60.0)
    assert freshness_of(lake, cut).is_part
    save_poll(lake, cut.published_micros + 60 * SECOND, keep_metadata_s=60.0)
    assert not freshness_of(lake, cut).is_part
    assert read_status(open_pipeline(files)).left_since_micros is None


def test_a_cut_of_a_part_reports_what_waits(files: PipelineSettings) -> None:
    """Its metadata has the wait of the oldest rest, besides the time from reading to publication."""
    cut = leave(files, POSITION - 400 * SECOND)
    since_micros = left_since(open_lake(files), cut)
    assert describe_cut(cut, since_micros, delivers_events=True)[WAITING] == 405.0
    assert left_since(open_lake(files), leave(files, None)) is None
    assert WAITING not in describe_cut(cut, None, delivers_events=True)


def test_a_poll_without_events_ends_the_wait(files: PipelineSettings) -> None:
    """An embedded engine may always have more: only polls show that nothing waits in a quiet database."""
    seen = report(EVENTS, files, RUNNING, Evaluation(), POSITION + 3600 * SECOND)
    save_poll(open_lake(files), POSITION + 4390 * SECOND, keep_metadata_s=60.0)
    later = report(EVENTS, files, RUNNING, Evaluation(seen.cursor), POSITION + 4400 * SECOND)
    first, *_ = later.asset_events or []
    assert first.metadata[WAITING].value == 10


def test_an_old_cut_of_events_is_not_late_by_its_age(files: PipelineSettings) -> None:
    """On demand, events that have just arrived do not count from the last cut, which may be days old."""
    check = build_freshness_check(EVENTS, files, RUNNING)
    selection = dg.AssetSelection.checks(check)
    definitions = dg.Definitions(asset_checks=[check], jobs=[dg.define_asset_job("ask", selection)])
    with dg.DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_job_def("ask").execute_in_process(instance=instance)
    passed = {each.asset_key.path[-1]: each.passed for each in result.get_asset_check_evaluations()}
    assert passed == {"accounts": True, "transfers": False}


def test_a_lag_that_is_not_known_is_a_warning(files: PipelineSettings) -> None:
    """While the source is down, the last result does not stay for ever; what waited still does."""
    before = report(EVENTS, files, RUNNING, Evaluation(), POSITION + SECOND)
    assert isinstance(files.source, DatastreamSettings)
    Path(files.source.path).rmdir()
    outcome = report(EVENTS, files, RUNNING, Evaluation(before.cursor), POSITION + 2 * SECOND)
    assert results_of(outcome) == {"accounts": (False, "WARN"), "transfers": (False, "WARN")}
    first, *_ = outcome.asset_events or []
    assert str(first.description).startswith("not known: SourceNotFound: ")
    assert json.loads(str(outcome.cursor))["news_since_micros"] == POSITION + SECOND


def test_a_report_deletes_old_results(bank: PipelineSettings, tmp_path: Path) -> None:
    """A pipeline that stands still requests no run that would; only the new results stay."""
    sensor = build_freshness_sensor(ASSETS, bank, replace(RUNNING, keep_runs_s=1e-6))
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        key = dg.AssetCheckKey(ASSETS.table("accounts"), FRESH)
        old = dg.AssetCheckEvaluation(key.asset_key, FRESH, passed=True, metadata={})
        instance.report_runless_asset_event(old)
        with dg.build_sensor_context(instance) as context:
            outcome = sensor(context)
        assert isinstance(outcome, dg.SensorResult)
        assert outcome.asset_events
        assert instance.event_log_storage.get_asset_check_execution_history(key, limit=10) == []


def test_a_run_reports_good_results_itself(bank: PipelineSettings) -> None:
    """While a run continues the sensor reports only lateness, such as that of a run that hangs."""
    assets, during = PipelineAssets("bank", ("accounts",)), Evaluation(is_running=True)
    assert results_of(report(assets, bank, RUNNING, during, POSITION + SECOND)) == {}
    late = report(assets, bank, RUNNING, during, POSITION + 61 * SECOND)
    assert results_of(late) == {"accounts": (False, "WARN")}


@pytest.mark.parametrize(("status", "is_reported"), [("STARTED", False), ("QUEUED", True)])
def test_the_sensor_reports_good_results_until_a_run_starts(
    bank: PipelineSettings, instance: dg.DagsterInstance, status: str, *, is_reported: bool
) -> None:
    """A run in Dagster's queue reports nothing, and may never start."""
    assets, tags = PipelineAssets("bank", ("accounts",)), pipeline_tag(bank.name)
    instance.add_run(
        dg.DagsterRun("bank_sync", status=dg.DagsterRunStatus[status], tags=tags, remote_job_origin=ORIGIN)
    )
    unbounded = replace(RUNNING, fresh_warn_s=1e12, fresh_fail_s=None)
    with dg.build_sensor_context(instance) as context:
        outcome = build_freshness_sensor(assets, bank, unbounded)(context)
    assert isinstance(outcome, dg.SensorResult)
    assert is_reported == bool(results_of(outcome))


@pytest.mark.parametrize("name", ["fresh_warn_s", "fresh_fail_s"])
def test_a_bound_is_a_positive_number(name: str) -> None:
    """A bound that every lag exceeds is refused by its name."""
    bounds: dict[str, Any] = {name: 0.0}
    with pytest.raises(SettingError, match=f"runs.{name}"):
        RunSettings(**bounds)
