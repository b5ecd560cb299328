"""What Dagster keeps of a pipeline's runs does not grow for as long as the pipeline runs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final

import dagster as dg
import pytest
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
)

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import FULL_CHECKS_TAG, pipeline_tag
from cdc_platform.model.base.names import FRESH
from cdc_platform.old_runs import MAX_AT_ONCE, delete_old_results, delete_old_runs
from cdc_platform.partitions import change_stream_partitions
from cdc_platform.sensors import RunSelection, RunSettings, build_schedule

ASSETS: Final = PipelineAssets("bank", ("accounts", "transfers"))
SENSOR: Final = "bank_sync_sensor"
BY_SENSOR: Final = {SENSOR_NAME_TAG: SENSOR}
DAY_S: Final = 86_400.0
PARTITIONS: Final = change_stream_partitions("bank")


@dg.asset(key=ASSETS.raw, partitions_def=PARTITIONS, backfill_policy=dg.BackfillPolicy.single_run())
def raw() -> None:
    """The raw records of all partitions."""


@dg.asset(key=ASSETS.table("accounts"))
def accounts() -> None:
    """A table."""


@dg.asset(key=ASSETS.table("transfers"))
def transfers() -> None:
    """A table that seldom changes."""


@dg.asset_check(asset=accounts)
def keys_unique() -> dg.AssetCheckResult:
    """A check of a table."""
    return dg.AssetCheckResult(passed=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of an instance whose storage is Dagster's default, in files."""
    return tmp_path


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance, with two live partitions."""
    with dg.DagsterInstance.local_temp(str(home)) as dagster:
        dagster.add_dynamic_partitions(str(PARTITIONS.name), ["p0", "p1"])
        yield dagster


@pytest.fixture(scope="module")
def with_two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dg.DagsterInstance, set[str]]]:
    """An instance of which no test deletes anything, and its runs."""
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("home"))) as dagster:
        yield dagster, {run(dagster, accounts), run(dagster, accounts)}


def run(instance: dg.DagsterInstance, *assets: dg.AssetsDefinition, **tags: str) -> str:
    """Materialise assets in a run that a sensor has requested, and return its id."""
    job = job_of(*assets)
    outcome = job.execute_in_process(instance=instance, tags={SENSOR_NAME_TAG: SENSOR, **tags})
    assert outcome.success
    return outcome.run_id


@cache
def job_of(*assets: dg.AssetsDefinition) -> dg.JobDefinition:
    """Return the job that materialises some assets, which may be checks."""
    job = dg.define_asset_job("materialise")
    return dg.Definitions(assets, jobs=[job]).resolve_job_def("materialise")


def kept_runs(instance: dg.DagsterInstance) -> set[str]:
    """Return the runs that Dagster has."""
    return set(instance.get_run_ids())


def test_old_runs_are_deleted_with_all_that_belongs_to_them(instance: dg.DagsterInstance, home: Path) -> None:
    """Events, check results, logs and the file of an old run go; the newest run keeps its own."""
    old, new = (run(instance, accounts, keys_unique) for _ in range(2))
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 1
    assert {new} == kept_runs(instance)
    assert [new] == [path.stem for path in home.rglob("*.db") if path.stem in (old, new)]
    assert list(home.rglob(f"{old}*")) == []
    with closing(sqlite3.connect(next(home.rglob("index.db")))) as index:
        for table in ("event_logs", "asset_check_executions"):
            assert [(new,)] == index.execute(f"SELECT DISTINCT run_id FROM {table}").fetchall()
    assert instance.get_latest_materialization_event(accounts.key) is not None


def test_a_run_within_the_retention_stays(with_two_runs: tuple[dg.DagsterInstance, set[str]]) -> None:
    """The retention counts from the end of a run."""
    instance, runs = with_two_runs
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, DAY_S) == 0
    assert runs == kept_runs(instance)


def test_the_newest_materialisations_stay(instance: dg.DagsterInstance) -> None:
    """A run stays while a table was last materialised in it; the newest one has all live partitions."""
    live = {ASSET_PARTITION_RANGE_START_TAG: "p0", ASSET_PARTITION_RANGE_END_TAG: "p1"}
    old = run(instance, raw, **live)
    rare, last_read = run(instance, transfers), run(instance, raw, **live)
    outdated, newest = run(instance, accounts), run(instance, accounts)
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 2
    assert {rare, last_read, newest} == kept_runs(instance)
    assert not {old, outdated} & kept_runs(instance)
    assert instance.get_materialized_partitions(raw.key) == {"p0", "p1"}


def test_runs_that_the_sensor_looks_at_stay(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short retention neither repeats full checks early nor forgets failures in a row."""
    monkeypatch.setattr("cdc_platform.old_runs.NEWEST", 2)
    own = pipeline_tag(ASSETS.pipeline)
    full = run(instance, accounts, **own, **{FULL_CHECKS_TAG: "true"})
    old, *newest = (run(instance, accounts, **own) for _ in range(3))
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 1
    assert {full, *newest} == kept_runs(instance)
    assert old not in kept_runs(instance)


def test_a_run_of_many_cycles_is_deleted(instance: dg.DagsterInstance, home: Path) -> None:
    """SQLite takes 250,000 values in a statement, and a run may have more materialisations."""
    old, new = run(instance, accounts), run(instance, accounts)
    with closing(sqlite3.connect(next(home.rglob("index.db")))) as index:
        index.execute(
            "INSERT INTO event_logs (run_id, event, dagster_event_type) "
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250001) "
            "SELECT ?, '', 'ASSET_MATERIALIZATION' FROM n",
            (old,),
        )
        index.commit()
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 1
    assert {new} == kept_runs(instance)


def test_an_error_does_not_stop_the_pipeline(
    with_two_runs: tuple[dg.DagsterInstance, set[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Logs may be in a bucket whose objects this process must not delete."""
    instance, runs = with_two_runs

    def refuse(**_: object) -> None:
        message = "AccessDenied"
        raise OSError(message)

    monkeypatch.setattr(instance.compute_log_manager, "delete_logs", refuse)
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 0
    assert runs == kept_runs(instance)
    assert "AccessDenied" in caplog.text


def test_dagster_plus_deletes_runs_itself(
    with_two_runs: tuple[dg.DagsterInstance, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its storage is behind an API, which refuses to delete runs."""
    instance, runs = with_two_runs
    monkeypatch.setattr(type(instance), "event_log_storage", property(lambda _: object()))
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 0
    monkeypatch.undo()
    assert runs == kept_runs(instance)


def test_runs_of_others_stay(instance: dg.DagsterInstance) -> None:
    """Runs that people or another sensor started are not the platform's to delete."""
    others = {run(instance, accounts, **{SENSOR_NAME_TAG: name}) for name in ("another_sensor", "")}
    newest = run(instance, accounts)
    assert delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) == 0
    assert {*others, newest} == kept_runs(instance)


def test_a_schedule_deletes_its_own_runs(instance: dg.DagsterInstance) -> None:
    """Each of its evaluations does, by the same rules, and requests a run."""
    schedule = build_schedule(
        RunSelection(ASSETS), RunSettings(keep_runs_s=1e-6), "0 6 * * *", dg.define_asset_job("bank_sync")
    )
    own = {SENSOR_NAME_TAG: "", SCHEDULE_NAME_TAG: schedule.name}
    old, of_sensor, newest = (
        run(instance, accounts, **own),
        run(instance, accounts),
        run(instance, accounts, **own),
    )
    with dg.build_schedule_context(instance) as context:
        assert isinstance(schedule(context), dg.RunRequest)
    assert {of_sensor, newest} == kept_runs(instance)
    assert old not in kept_runs(instance)


def test_many_old_runs_are_deleted_in_parts(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation of the sensor deletes a bounded number of runs, the oldest first."""
    monkeypatch.setattr("cdc_platform.old_runs.MAX_AT_ONCE", 2)
    assert MAX_AT_ONCE > 2
    runs = [run(instance, accounts) for _ in range(4)]
    assert [delete_old_runs(instance, ASSETS, BY_SENSOR, keep_s=0) for _ in range(3)] == [2, 1, 0]
    assert {runs[-1]} == kept_runs(instance)


def test_results_without_a_run_have_the_same_retention(
    instance: dg.DagsterInstance, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old ones of the freshness check go, from each file; those of other checks, tables and days stay."""
    monkeypatch.setattr("cdc_platform.old_runs.RESULTS_AT_ONCE", 2)
    other_table, other_check = dg.AssetKey("others"), dg.AssetCheckKey(accounts.key, "keys_unique")
    checks = [dg.AssetCheckKey(key, FRESH) for key in (*ASSETS.all_tables, other_table)] + [other_check]
    for _ in range(2):
        for check in checks:
            evaluation = dg.AssetCheckEvaluation(check.asset_key, check.name, passed=True, metadata={})
            instance.report_runless_asset_event(evaluation)
    assert delete_old_results(instance, ASSETS, DAY_S) == 0
    assert [delete_old_results(instance, ASSETS, keep_s=0) for _ in range(3)] == [2, 2, 0]
    for path in (next(home.rglob("index.db")), next(home.rglob(".db"))):
        with closing(sqlite3.connect(path)) as storage:
            assert storage.execute("SELECT count(*) FROM event_logs").fetchall() == [(4,)], path
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    assert latest.keys() == {dg.AssetCheckKey(other_table, FRESH), other_check}


def test_results_whose_events_cannot_be_deleted_stay(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its result nothing would find an event again, so both are deleted by a later report."""
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(ASSETS.table("accounts"), FRESH, passed=True, metadata={})
    )

    def refuse(_run_id: str) -> None:
        raise OSError("database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(instance.event_log_storage, "run_connection", refuse)
        assert delete_old_results(instance, ASSETS, keep_s=0) == 0
    assert "database is locked" in caplog.text
    assert delete_old_results(instance, ASSETS, keep_s=0) == 1
