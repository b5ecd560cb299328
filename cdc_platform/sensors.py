"""The sensor of a pipeline, which keeps Dagster's partitions in step with the source and requests runs.

It is plain Python on the lake's metadata: no Spark, and one short request to the source before each run.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG, SCHEDULE_NAME_TAG, SENSOR_NAME_TAG

from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import (
    FULL_CHECKS_TAG,
    failures_in_a_row,
    launched_runs,
    newest_full_checks,
    newest_runs,
    pipeline_tag,
)
from cdc_platform.errors import CdcError, SettingError, SourceError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.read_progress import load_read_progress, save_poll, waiting_texts
from cdc_platform.model.base.declared_settings import Described, check_range
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.stream.lineage import Lineage, live
from cdc_platform.model.stream.read_windows import ReadRequest
from cdc_platform.partitions import sync_partitions
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.read_plan import plan_reads
from cdc_platform.pipeline.reading.trace import trace_lineage

SOURCE_DEADLINE_S: Final = 10.0
"""An evaluation of a sensor has 60 s, and a source that is down must not use them up."""

RETRIED_WITHIN_S: Final = 60.0
"""Dagster's daemon looks for runs to retry every few seconds; it may be switched off meanwhile."""

BACKOFF_S: Final = (0, 0, 10, 30, 60, 120, 300)
"""Pauses by number of failed runs in a row; a run whose process was killed does not count."""


@contextmanager
def _refusing(setting: str, problem: str) -> Iterator[None]:
    """Turn Dagster's rejection of a value into an error that names its setting."""
    try:
        yield
    except dg.DagsterInvalidDefinitionError as error:
        raise SettingError(setting, problem) from error


@dataclass(frozen=True)
class RunSettings:
    """Settings for running a pipeline with Dagster."""

    sensor: Annotated[
        bool, Described("Whether the sensor is on from the start; the UI can switch it later.")
    ] = True
    schedule: Annotated[
        str | None,
        Described(
            "Cron expression, in UTC, for runs of one cycle, such as `0 6 * * *`; empty means no schedule."
        ),
    ] = None
    poll_s: Annotated[
        int, Described("Minimum seconds between two evaluations of the sensor; Dagster's minimum is 5.")
    ] = 3
    follow_s: Annotated[
        float,
        Described(
            "Seconds for which a run of the sensor continues with further cycles; 0 means one cycle per run."
        ),
    ] = 600.0
    full_checks_every_s: Annotated[
        float,
        Described("Seconds between two runs that also compare whole tables with the log and the source."),
    ] = 600.0
    fresh_warn_s: Annotated[
        float | None,
        Described("Lag of the newest cut, in seconds, above which the check `fresh` of each table warns."),
    ] = 300.0
    fresh_fail_s: Annotated[
        float | None,
        Described("Lag in seconds above which `fresh` fails; in both settings, empty means no limit."),
    ] = 3600.0
    keep_runs_s: Annotated[
        float | None,
        Described(
            "Seconds for which Dagster keeps finished runs of the sensor and the schedule; empty means for "
            "ever."
        ),
    ] = 604_800.0
    owners: Annotated[
        tuple[str, ...], Described("Owners of the assets: e-mail addresses, or `team:NAME`.")
    ] = ()

    def __post_init__(self) -> None:
        check_range(self, ("fresh_warn_s", "fresh_fail_s", "keep_runs_s"), above=0, place="runs.")
        check_range(self, ("poll_s",), at_least=1, place="runs.")
        check_range(self, ("follow_s", "full_checks_every_s"), at_least=0, place="runs.")
        if self.fresh_warn_s and self.fresh_fail_s and self.fresh_warn_s > self.fresh_fail_s:
            problem = f"must not be above `runs.fresh_fail_s`, which is {self.fresh_fail_s:g}: "
            raise SettingError("runs.fresh_warn_s", f"{problem}{self.fresh_warn_s:g}")
        self._check_with_dagster()

    def _check_with_dagster(self) -> None:
        """Reject values that Dagster would only reject when it loads the code location."""
        if self.schedule is not None:
            problem = f"must be a cron expression such as `0 6 * * *`: {self.schedule}"
            with _refusing("runs.schedule", problem):
                dg.ScheduleDefinition(job_name="checked", cron_schedule=self.schedule)
        for number, owner in enumerate(self.owners):
            with _refusing(f"runs.owners.{number}", f"must be an e-mail address, or `team:NAME`: {owner}"):
                dg.AssetSpec("checked", owners=[owner])

    @property
    def has_freshness(self) -> bool:
        """Whether the tables have a freshness check."""
        return self.fresh_warn_s is not None or self.fresh_fail_s is not None


@dataclass(frozen=True)
class RunSelection:
    """Selection of a run of the sensor or the schedule: all assets, and the checks that are steps of it.

    The pipeline's own checks are not steps: they run within the steps, so their last results stay visible.
    """

    assets: PipelineAssets
    checks: tuple[dg.AssetCheckKey, ...] = ()


def default_status(runs: RunSettings) -> dg.DefaultSensorStatus:
    """Return whether the sensors of a pipeline are on from the start."""
    return dg.DefaultSensorStatus.RUNNING if runs.sensor else dg.DefaultSensorStatus.STOPPED


def sensor_name(pipeline: str) -> str:
    """Return the name of the sensor that keeps a pipeline going."""
    return f"{pipeline}_sync_sensor"


def build_schedule(
    selection: RunSelection, runs: RunSettings, cron: str, job: UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Return the schedule of a pipeline's runs of one cycle, each with full checks."""
    assets = selection.assets
    name = f"{assets.pipeline}_sync_schedule"

    @dg.schedule(
        name=name,
        job=job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Runs a cycle of `{assets.pipeline}` and all of its checks.",
    )
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        if runs.keep_runs_s is not None:
            from cdc_platform.old_runs import delete_old_runs  # which imports Dagster's storage, and Alembic

            delete_old_runs(context.instance, assets, {SCHEDULE_NAME_TAG: name}, runs.keep_runs_s)
        return dg.RunRequest(
            asset_selection=assets.all_keys,
            asset_check_keys=list(selection.checks),
            tags={FULL_CHECKS_TAG: "true"},
        )

    return evaluate


def build_sensor(
    settings: PipelineSettings,
    runs: RunSettings,
    selection: RunSelection,
    job: UnresolvedAssetJobDefinition,
) -> dg.SensorDefinition:
    """Return the sensor that keeps a pipeline going."""

    @dg.sensor(
        name=sensor_name(settings.name),
        job=job,
        minimum_interval_seconds=runs.poll_s,
        default_status=default_status(runs),
        description=f"Adds and removes the partitions that `{settings.name}` reads, and requests a "
        "run, which reads all live ones, as soon as the last run has ended.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        return evaluate_pipeline(context.instance, settings, runs, selection)

    return evaluate


def evaluate_pipeline(
    instance: dg.DagsterInstance, settings: PipelineSettings, runs: RunSettings, selection: RunSelection
) -> dg.SensorResult | dg.SkipReason:
    """Return the result of one evaluation of the sensor."""
    reason = find_wait_reason(instance, settings.name)
    if reason is not None:
        return dg.SkipReason(reason)
    pipeline = open_pipeline(replace(settings, source=settings.source.with_deadline(SOURCE_DEADLINE_S)))
    try:
        with reaching(settings.lake):
            clock_micros = pipeline.source.clock_micros()
            lineage = trace_lineage(pipeline)
            if not has_news(pipeline, lineage, clock_micros):
                save_poll(pipeline.lake, clock_micros, settings.maintenance.keep_metadata_s)
                return dg.SkipReason("There is nothing new to read, and everything read is published.")
    except SourceError as error:
        return dg.SkipReason(f"The source cannot be read ({type(error).__name__}): {error}")
    except CdcError as error:
        return dg.SkipReason(f"{type(error).__name__}: {error}")
    finally:
        pipeline.source.close()
    if runs.keep_runs_s is not None:
        from cdc_platform.old_runs import delete_old_runs

        requested_by = {SENSOR_NAME_TAG: sensor_name(settings.name)}
        delete_old_runs(instance, selection.assets, requested_by, runs.keep_runs_s)
    return _request(instance, runs, selection, lineage)


def has_news(pipeline: Pipeline, lineage: Lineage, clock_micros: int) -> bool:
    """Return whether a cycle has something to read, or to publish from an interrupted cycle."""
    cut = newest_cut(pipeline.lake)
    if cut is None or cut.cycle < read_mark(pipeline.lake.system_table(RAW)).cycle:
        return True
    request = ReadRequest(clock_micros, has_replay=waiting_texts(pipeline.lake) is not None)
    plan = plan_reads(pipeline.source, lineage, request, lambda: load_read_progress(pipeline.lake))
    return bool(plan.windows)


def find_wait_reason(instance: dg.DagsterInstance, pipeline: str) -> str | None:
    """Return the reason not to request a run of a pipeline now, None if there is none."""
    if going_on := launched_runs(instance, pipeline):
        return f"Run {going_on[0].dagster_run.run_id[:8]} of the pipeline has not ended."
    if queued := _own_queued_runs(instance, pipeline):
        return f"Run {queued[0].run_id[:8]} of the pipeline is in Dagster's queue."
    if _is_retry_due(instance, pipeline):
        return "The last run failed, and Dagster is about to retry it."
    failures, ended_at = failures_in_a_row(instance, pipeline, limit=len(BACKOFF_S) - 1)
    wait_s = BACKOFF_S[failures] - (time.time() - ended_at)
    # Setting the clock back does not prolong the pause.
    if failures and 0 < wait_s <= BACKOFF_S[failures]:
        return f"The last {failures} runs failed; the sensor requests the next one in {wait_s:.0f} s."
    return None


def _own_queued_runs(instance: dg.DagsterInstance, pipeline: str) -> list[dg.DagsterRun]:
    """Return the runs in Dagster's queue that the sensor requested, and Dagster's own retries of them.

    What holds these back also holds back the next one; a run of a user may have tags with limits of its own.
    """
    tags = {**pipeline_tag(pipeline), SENSOR_NAME_TAG: sensor_name(pipeline)}
    runs = instance.get_runs(dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.QUEUED]))
    return [run for run in runs if PARENT_RUN_ID_TAG not in run.tags or RETRY_NUMBER_TAG in run.tags]


def _is_retry_due(instance: dg.DagsterInstance, pipeline: str) -> bool:
    """Return whether Dagster's own daemon has yet to retry the newest run; a run requested now would wait."""
    # The clock of Dagster's database may be ahead, or was set back: neither prolongs the pause by much.
    return any(
        record.dagster_run.is_complete_and_waiting_to_retry
        and abs(time.time() - record.update_timestamp.timestamp()) < RETRIED_WITHIN_S
        for record in newest_runs(instance, pipeline, limit=1)
    )


def _request(
    instance: dg.DagsterInstance, runs: RunSettings, selection: RunSelection, lineage: Lineage
) -> dg.SensorResult | dg.SkipReason:
    assets = selection.assets
    sync_partitions(instance, assets.pipeline, lineage)
    if not live(lineage):
        return dg.SkipReason("The change stream has ended: no partition is left to be read.")
    with_full_checks = _are_full_checks_due(instance, assets.pipeline, runs.full_checks_every_s)
    request = dg.RunRequest(
        asset_selection=assets.all_keys,
        asset_check_keys=list(selection.checks),
        run_config=_run_config(assets, runs),
        # It names no partitions, so it can be executed again when those of today have ended.
        tags={**pipeline_tag(assets.pipeline), FULL_CHECKS_TAG: str(with_full_checks).lower()},
    )
    return dg.SensorResult(run_requests=[request])


def _are_full_checks_due(instance: dg.DagsterInstance, pipeline: str, every_s: float) -> bool:
    records = newest_full_checks(instance, pipeline)
    return not records or not 0 <= time.time() - records[0].create_timestamp.timestamp() < every_s


def _run_config(assets: PipelineAssets, runs: RunSettings) -> Mapping[str, Any]:
    op = assets.cut.to_python_identifier()
    return {"ops": {op: {"config": {"follow_s": runs.follow_s}}}}
