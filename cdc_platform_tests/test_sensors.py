"""The sensor: partitions level with the lineage, one run at a time, and no Spark."""

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.storage.tags import (
    AUTO_RETRY_RUN_ID_TAG,
    PARENT_RUN_ID_TAG,
    RETRY_NUMBER_TAG,
    SENSOR_NAME_TAG,
    WILL_RETRY_TAG,
)

from cdc_platform import sensors
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import CLAIM_TAG, FULL_CHECKS_TAG, Claim, Worker, pipeline_tag
from cdc_platform.errors import SourceUnreachable
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import save_lineage
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.lake.state.read_progress import load_poll
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState, begin
from cdc_platform.partitions import KEEP_ENDED_S, change_stream_partitions, sync_partitions
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sensors import RunSelection, RunSettings, evaluate_pipeline, find_wait_reason
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.run_origins import ORIGIN

START = 1_800_000_000_000_000
PARTITIONS = "bank/change_stream_partitions"


class StillSource:
    """A source with a clock that stands still."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down
        self.is_closed = False

    def clock_micros(self) -> int:
        """Return the present."""
        if self.is_down:
            raise SourceUnreachable("nobody answers")
        return START

    def start_micros(self) -> int:
        """Return the beginning."""
        return START

    def close(self) -> None:
        """Be closed."""
        self.is_closed = True


@pytest.fixture
def settings(tmp_path: Path) -> PipelineSettings:
    """A pipeline with an empty lake."""
    return PipelineSettings("bank", SpannerSettings("p", "i", "d", "s"), LakeSettings(str(tmp_path)))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> StillSource:
    """The source that the sensor meets."""
    source = StillSource()

    def open_fake(settings: PipelineSettings) -> Pipeline:
        return Pipeline(settings, Lake(settings.lake, settings.name), cast("SpannerSource", source))

    monkeypatch.setattr(sensors, "open_pipeline", open_fake)
    return source


ASSETS = PipelineAssets("bank", ("accounts",))
CHECK = dg.AssetCheckKey(dg.AssetKey(["bank__cdc", "stream"]), "stream_is_running")
WANTED = RunSelection(ASSETS, (CHECK,))


def partition(token: str, state: PartitionState, seconds: int) -> Partition:
    """Return a partition that starts some seconds after the beginning."""
    start = START + seconds * 1_000_000
    return Partition(token, ("",) if token else (), state, start, start, 1, 1)


def save(settings: PipelineSettings, *partitions: Partition) -> list[str]:
    """Store a lineage in the lake, and return the keys of its partitions."""
    lineage = Lineage({partition.token: partition for partition in partitions}, cycle=0)
    save_lineage(Lake(settings.lake, settings.name), lineage)
    return [partition.key for partition in partitions]


def run_request_of(outcome: dg.SensorResult | dg.SkipReason) -> dg.RunRequest:
    """Return the only run that a sensor asks for."""
    assert isinstance(outcome, dg.SensorResult)
    assert outcome.run_requests is not None
    (request,) = outcome.run_requests
    return request


def reason(outcome: dg.SensorResult | dg.SkipReason) -> str:
    """Return why a sensor asks for nothing."""
    assert isinstance(outcome, dg.SkipReason)
    assert outcome.skip_message is not None
    return outcome.skip_message


@pytest.mark.usefixtures("source")
def test_a_new_pipeline_begins_at_the_root(instance: dg.DagsterInstance, settings: PipelineSettings) -> None:
    """The first look adds the root partition, and asks for a run."""
    request = run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    assert instance.get_dynamic_partitions(PARTITIONS) == ["root"]
    assert pipeline_tag("bank").items() <= request.tags.items()


@pytest.mark.usefixtures("source")
def test_the_sensor_keeps_the_partitions_level(
    instance: dg.DagsterInstance, settings: PipelineSettings
) -> None:
    """Children whose parents finished are added, others wait, and what the lineage does not have goes."""
    live_token, child, _waits = save(
        settings,
        partition("kept", PartitionState.RUNNING, 1),
        partition("child", PartitionState.SCHEDULED, 3),
        partition("waits", PartitionState.CREATED, 4),
    )
    instance.add_dynamic_partitions(PARTITIONS, ["unknown", live_token])
    assert run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    assert instance.get_dynamic_partitions(PARTITIONS) == [live_token, child]


@pytest.mark.usefixtures("source")
def test_a_run_can_be_executed_again_when_its_partitions_have_ended(
    instance: dg.DagsterInstance, settings: PipelineSettings
) -> None:
    """The request names no partitions: Dagster does not create a run with one that is gone."""
    save(settings, partition("a", PartitionState.RUNNING, 1))
    request = run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    for key in instance.get_dynamic_partitions(PARTITIONS):
        instance.delete_dynamic_partition(PARTITIONS, key)

    @dg.asset(key=ASSETS.raw, partitions_def=change_stream_partitions("bank"))
    def raw() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult()

    assert dg.materialize([raw], instance=instance, tags=dict(request.tags)).success


@pytest.mark.parametrize(
    ("tags", "ago_s", "waits"),
    [
        ({WILL_RETRY_TAG: "true"}, 0, True),
        ({WILL_RETRY_TAG: "true"}, -5, True),
        ({WILL_RETRY_TAG: "true"}, 61, False),
        ({WILL_RETRY_TAG: "true"}, -65, False),
        ({WILL_RETRY_TAG: "true", AUTO_RETRY_RUN_ID_TAG: "r"}, 0, False),
        ({WILL_RETRY_TAG: "false"}, 0, False),
    ],
)
def test_a_retry_of_dagster_comes_first(
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    tags: dict[str, str],
    ago_s: float,
    *,
    waits: bool,
) -> None:
    """Between the failure of a run and its retry no other run is requested, which would only wait.

    If Dagster does not retry it, the sensor goes on after a minute. The clock of Dagster's database may be
    some seconds ahead.
    """
    run = dg.DagsterRun(
        "bank_sync", tags={**pipeline_tag("bank"), **tags}, status=dg.DagsterRunStatus.FAILURE
    )
    instance.add_run(run)
    now_s = time.time() + ago_s
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: now_s))
    expected = "The last run failed, and Dagster is about to retry it." if waits else None
    assert expected == find_wait_reason(instance, "bank")


@pytest.mark.usefixtures("source")
def test_a_run_gets_the_time_to_follow(instance: dg.DagsterInstance, settings: PipelineSettings) -> None:
    """The run continues with further cycles for as long as the pipeline's settings say."""
    request = run_request_of(evaluate_pipeline(instance, settings, RunSettings(follow_s=7.0), WANTED))
    assert request.run_config == {"ops": {"bank__cdc__cut": {"config": {"follow_s": 7.0}}}}
    assert request.asset_selection == ASSETS.all_keys


@pytest.mark.usefixtures("source")
def test_full_checks_run_periodically(instance: dg.DagsterInstance, settings: PipelineSettings) -> None:
    """The first run has full checks; later ones have them when the interval has passed again.

    Its checks are not steps, which would hide their last results from its start on.
    """
    first = run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    assert first.asset_check_keys == [CHECK]
    assert first.tags[FULL_CHECKS_TAG] == "true"
    instance.add_run(
        dg.DagsterRun(job_name="bank_sync", status=dg.DagsterRunStatus.SUCCESS, tags=dict(first.tags))
    )
    second = run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    assert second.tags[FULL_CHECKS_TAG] == "false"
    third = run_request_of(evaluate_pipeline(instance, settings, RunSettings(full_checks_every_s=0), WANTED))
    assert third.tags[FULL_CHECKS_TAG] == "true"


def add_claimed_run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, worker: Worker) -> str:
    """Add a run that a process has claimed, and return its id."""
    run_id = str(uuid4())
    tags = {**pipeline_tag("bank"), CLAIM_TAG: Claim(run_id, 1.0, (worker,)).to_tag()}
    return instance.add_run(dg.DagsterRun("bank_sync", run_id, status=status, tags=tags)).run_id


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
@pytest.mark.usefixtures("source")
def test_two_runs_of_a_pipeline_never_overlap(
    instance: dg.DagsterInstance, settings: PipelineSettings, status: str
) -> None:
    """While a run is in progress in any status, no other is asked for."""
    run_id = add_claimed_run(instance, dg.DagsterRunStatus[status], Worker.current())
    assert run_id[:8] in reason(evaluate_pipeline(instance, settings, RunSettings(), WANTED))


@pytest.mark.parametrize(
    ("tags", "waits"),
    [
        ({SENSOR_NAME_TAG: "bank_sync_sensor"}, True),
        ({SENSOR_NAME_TAG: "bank_sync_sensor", PARENT_RUN_ID_TAG: "r", RETRY_NUMBER_TAG: "1"}, True),
        ({SENSOR_NAME_TAG: "bank_sync_sensor", PARENT_RUN_ID_TAG: "r", "team": "limited"}, False),
        ({"team": "limited"}, False),
    ],
)
def test_the_sensor_waits_for_queued_runs_of_its_own(
    instance: dg.DagsterInstance, tags: dict[str, str], *, waits: bool
) -> None:
    """A limit of the queue on tags of a user may keep any other run from starting for ever."""
    queued = dg.DagsterRunStatus.QUEUED
    run = dg.DagsterRun(
        "bank_sync", tags={**pipeline_tag("bank"), **tags}, status=queued, remote_job_origin=ORIGIN
    )
    run_id = instance.add_run(run).run_id
    expected = f"Run {run_id[:8]} of the pipeline is in Dagster's queue." if waits else None
    assert expected == find_wait_reason(instance, "bank")


@pytest.mark.usefixtures("source")
def test_a_killed_run_does_not_stop_the_pipeline(
    instance: dg.DagsterInstance, settings: PipelineSettings
) -> None:
    """The look after a run lost its process asks for the next one."""
    earlier_worker = Worker(Worker.current().host, Worker.current().pid, "another start")
    add_claimed_run(instance, dg.DagsterRunStatus.STARTED, earlier_worker)
    assert run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(("keep_runs_s", "is_kept"), [(1e-6, False), (3600.0, True), (None, True)])
def test_old_runs_are_deleted_when_a_run_is_requested(
    instance: dg.DagsterInstance, settings: PipelineSettings, keep_runs_s: float | None, *, is_kept: bool
) -> None:
    """Finished runs of the sensor go after the time of the setting, and stay if it is empty."""
    tags = {SENSOR_NAME_TAG: "bank_sync_sensor"}
    instance.add_run(dg.DagsterRun("bank_sync", status=dg.DagsterRunStatus.SUCCESS, tags=tags))
    assert run_request_of(evaluate_pipeline(instance, settings, RunSettings(keep_runs_s=keep_runs_s), WANTED))
    assert is_kept == bool(instance.get_run_ids())


@pytest.mark.usefixtures("source")
def test_failing_runs_are_asked_for_less_often(
    instance: dg.DagsterInstance, settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure is tried again at once, several in a row after a pause that grows.

    A clock that was set back since the last one does not prolong the pause.
    """
    monkeypatch.setattr(sensors, "failures_in_a_row", lambda *_args, **_named: (1, time.time()))
    assert run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    monkeypatch.setattr(sensors, "failures_in_a_row", lambda *_args, **_named: (3, time.time()))
    assert "last 3 runs failed" in reason(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    monkeypatch.setattr(sensors, "failures_in_a_row", lambda *_args, **_named: (3, time.time() + 3600))
    assert run_request_of(evaluate_pipeline(instance, settings, RunSettings(), WANTED))


def test_a_source_that_is_down_is_a_reason_to_wait(
    instance: dg.DagsterInstance, settings: PipelineSettings, source: StillSource
) -> None:
    """An unreachable source makes no failing runs: the sensor says what is wrong, and looks again."""
    source.is_down = True
    assert "nobody answers" in reason(evaluate_pipeline(instance, settings, RunSettings(), WANTED))
    assert source.is_closed


@pytest.mark.usefixtures("source")
def test_a_stream_that_ended_is_a_reason_to_wait(
    instance: dg.DagsterInstance, settings: PipelineSettings
) -> None:
    """When no partition is left, there is nothing to ask for."""
    save(settings, partition("done", PartitionState.FINISHED, 1))
    assert "ended" in reason(evaluate_pipeline(instance, settings, RunSettings(), WANTED))


def test_ended_partitions_stay_for_an_hour(instance: dg.DagsterInstance) -> None:
    """Pages, waiting runs and backfills still name them, and fail if they are gone."""
    ended, child = (
        partition(token, state, seconds)
        for token, state, seconds in (
            ("ended", PartitionState.FINISHED, 1),
            ("child", PartitionState.SCHEDULED, 2),
        )
    )
    instance.add_dynamic_partitions(PARTITIONS, [ended.key])
    for later_s, kept_keys in ((KEEP_ENDED_S, [ended.key, child.key]), (KEEP_ENDED_S + 1, [child.key])):
        position_micros = ended.position_micros + later_s * 1_000_000
        read = replace(child, position_micros=position_micros)
        sync_partitions(instance, "bank", Lineage({part.token: part for part in (ended, read)}, 3))
        assert kept_keys == instance.get_dynamic_partitions(PARTITIONS)


def test_partitions_that_the_newest_cycles_ended_stay(instance: dg.DagsterInstance) -> None:
    """A cycle that catches up reads hours, and runs that wait for it name what was live before."""
    ended = replace(partition("ended", PartitionState.FINISHED, 1), finished_cycle=3)
    child = partition("child", PartitionState.SCHEDULED, 2 * KEEP_ENDED_S)
    instance.add_dynamic_partitions(PARTITIONS, [ended.key])
    for cycle, kept_keys in ((4, [ended.key, child.key]), (5, [child.key])):
        sync_partitions(instance, "bank", Lineage({part.token: part for part in (ended, child)}, cycle))
        assert kept_keys == instance.get_dynamic_partitions(PARTITIONS)


def test_partitions_are_named_after_the_pipeline() -> None:
    """Two pipelines of one Dagster instance do not share their keys."""
    assert change_stream_partitions("bank").name == PARTITIONS


@pytest.fixture
def silent_files(tmp_path: Path) -> PipelineSettings:
    """A pipeline of files that has published everything, and whose catalog's users do not wait."""
    (tmp_path / "files").mkdir()
    source = DatastreamSettings(str(tmp_path / "files"))
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=0.05"}
    settings = PipelineSettings("files", source, LakeSettings(str(tmp_path / "lake"), catalog))
    lake = Lake(settings.lake, "files", delivers_events=True)
    root = replace(begin(START).partitions[ROOT_TOKEN], running_cycle=1)
    save_lineage(lake, Lineage({ROOT_TOKEN: root}, 1))
    append_cut(lake, Cut(1, START, 0, {}, START))
    return settings


def test_a_sensor_that_finds_nothing_stores_its_poll(
    instance: dg.DagsterInstance, silent_files: PipelineSettings
) -> None:
    """A pipeline of files whose bucket is silent does not look like one whose daemon is dead."""
    before = clock_micros()
    outcome = evaluate_pipeline(instance, silent_files, RunSettings(), WANTED)
    assert reason(outcome).startswith("There is nothing new")
    polled = load_poll(Lake(silent_files.lake, "files", delivers_events=True))
    assert before <= polled <= clock_micros()


def test_a_lake_that_cannot_be_written_is_a_reason_to_wait(
    instance: dg.DagsterInstance, silent_files: PipelineSettings, tmp_path: Path
) -> None:
    """Where the poll cannot be stored, the sensor says what is wrong with the lake, and looks again."""
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        outcome = evaluate_pipeline(instance, silent_files, RunSettings(), WANTED)
    assert reason(outcome).startswith("LakeUnreachable: ")
    assert "database is locked" in reason(outcome)
