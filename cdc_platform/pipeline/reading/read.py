"""The first step of a cycle: plan windows, read them, and commit their records in one commit."""

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import SourceError, as_source_error
from cdc_platform.lake.commits.commits import LEFT_SINCE, POSITION, read_mark
from cdc_platform.lake.commits.data_files import DATA_FILES, data_file_writer, data_files_of
from cdc_platform.lake.commits.writes import CycleStep, append_files
from cdc_platform.lake.state.control import read_control
from cdc_platform.lake.state.read_progress import load_read_progress, save_poll, waiting_texts
from cdc_platform.model.base.quantities import as_count
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.model.stream.lineage import live, watermark_micros
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.model.stream.watermark_holders import find_stuck
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.reading.file_contents import ContentNotes
from cdc_platform.pipeline.reading.local_read import commit_local
from cdc_platform.pipeline.reading.read_plan import plan_reads
from cdc_platform.pipeline.reading.replayed_texts import replayed_records
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.spark.session.session_settings import PLANNED_ONCE, changed_settings, local_cores

LOGGER: Final = logging.getLogger(__name__)

MAX_ROUNDS: Final = 20
"""Maximum number of rounds of one cycle; each reads the children that the previous round could not follow."""

ROUND_WORTH_S: Final = 2.0
"""Time for which an unread child must hold back the watermark to justify another round of Spark."""
LOCAL_ROUND_WORTH_S: Final = 0.5
"""The same time if this process reads."""


WINDOWS_PER_TASK: Final = 8
"""Windows that a task reads at a time; fewer tasks can follow more partitions that split and merge."""
RECORDS_PER_TASK: Final = 500_000
"""Above this, reading in parallel saves more time than following partitions does."""
LONG_S: Final = 60.0
"""Seconds above which a plan with an unknown rate is read in parallel."""


@dataclass(frozen=True)
class ReadOutcome:
    """Result of reading in a cycle; ``committed`` is False if there was nothing to read.

    ``planned_end_micros`` is the planned end of its windows; windows of finished partitions end earlier.
    ``is_local`` means that this process read them instead of Spark's tasks; ``left_since_micros`` is the age
    of the oldest data that it left to later cycles.
    """

    cycle: int
    windows: tuple[WindowReport, ...]
    records: Mapping[RecordKind, int]
    committed: bool
    clock_micros: int
    planned_end_micros: int
    is_local: bool = False
    left_since_micros: int | None = None

    @property
    def another_is_worth_micros(self) -> int:
        """The time that the watermark must lag to justify another round of reading."""
        return round((LOCAL_ROUND_WORTH_S if self.is_local else ROUND_WORTH_S) * MICROS_PER_S)

    @property
    def interrupted(self) -> tuple[WindowReport, ...]:
        """Windows whose read failed; their records so far are kept, and the next cycle continues them."""
        return tuple(report for report in self.windows if report.outcome is WindowOutcome.INTERRUPTED)

    @property
    def failures(self) -> tuple[SourceError, ...]:
        """Errors of the failed reads of windows."""
        return tuple(as_source_error(report.error_name, report.error_message) for report in self.interrupted)

    def followed_by(self, next_round: "ReadOutcome") -> "ReadOutcome":
        """Return this round and the next one as one."""
        kinds = self.records.keys() | next_round.records.keys()
        return replace(
            next_round,
            windows=self.windows + next_round.windows,
            records={kind: self.records.get(kind, 0) + next_round.records.get(kind, 0) for kind in kinds},
        )


def newest_known_micros(pipeline: Pipeline) -> int:
    """Return the time up to which the source is known to have data; lags are measured from it.

    For a change stream, that is the source's clock. For an event source, it is the time of the cycle that
    last found events, because a pipeline cannot be behind a source without new events.
    """
    mark = read_mark(pipeline.lake.system_table(RAW))
    if pipeline.capabilities.delivers_events and mark.position_micros is not None:
        return mark.position_micros
    return pipeline.source.clock_micros()


def read_generations(pipeline: Pipeline, spark: SparkSession, *, ends_pauses: bool = False) -> ReadOutcome:
    """Read all live partitions up to the source's clock, and then the children that they announced.

    A child holds the watermark at its start until it is read, so it is read at once if waiting for the next
    cycle would cost more than another round. With ``ends_pauses``, unreadable files are retried now.

    Raises:
        CommitConflict: another run has committed the same cycle; nothing was changed.
        SourceError: no window could be read.
    """
    outcome = read_windows(pipeline, spark, ends_pauses=ends_pauses)
    for _ in range(MAX_ROUNDS - 1):
        watermark = watermark_micros(trace_lineage(pipeline))
        if not outcome.committed or watermark is None or outcome.interrupted:
            break
        if outcome.planned_end_micros - watermark < outcome.another_is_worth_micros:
            break
        next_round = read_windows(pipeline, spark, end_limit_micros=outcome.planned_end_micros)
        if not next_round.committed:
            break
        outcome = outcome.followed_by(next_round)
    return outcome


def read_partitions(
    pipeline: Pipeline,
    spark: SparkSession,
    partition_keys: Collection[str] | None,
    *,
    ends_pauses: bool = False,
) -> ReadOutcome:
    """Read chosen partitions; if they are None or all live ones, read like a whole cycle.

    Raises:
        CommitConflict: another run has committed the same cycle; nothing was changed.
        SourceError: no window could be read.
    """
    if partition_keys is None or {partition.key for partition in live(trace_lineage(pipeline))} <= {
        *partition_keys
    }:
        return read_generations(pipeline, spark, ends_pauses=ends_pauses)
    return read_windows(pipeline, spark, partition_keys, ends_pauses=ends_pauses)


@pipeline_step("read")
def read_windows(
    pipeline: Pipeline,
    spark: SparkSession,
    partition_keys: Collection[str] | None = None,
    end_limit_micros: int | None = None,
    *,
    ends_pauses: bool = False,
) -> ReadOutcome:
    """Read the records of the live partitions up to the source's clock, and commit them.

    Only the commit advances the reader: positions and lineage are derived from it.

    Args:
        pipeline: the pipeline.
        spark: session that does the reading.
        partition_keys: partitions to read; None means all live ones.
        end_limit_micros: latest time to read.
        ends_pauses: whether to retry files that could not be read now.

    Raises:
        CommitConflict: another run has committed the same cycle; nothing was changed.
        SourceError: nothing could be read, or a window failed for good; the records read are committed.
    """
    raw = pipeline.lake.system_table(RAW)
    mark = read_mark(raw)
    lineage = trace_lineage(pipeline)
    clock_micros = pipeline.source.clock_micros()
    replay = waiting_texts(pipeline.lake)
    limits = (pipeline.settings.max_window_s, partition_keys, end_limit_micros)
    request = ReadRequest(clock_micros, *limits, has_replay=replay is not None, ends_pauses=ends_pauses)
    plan = plan_reads(pipeline.source, lineage, request, lambda: load_read_progress(pipeline.lake))
    if not plan.windows:
        save_poll(pipeline.lake, clock_micros, pipeline.settings.maintenance.keep_metadata_s)
        known_micros = newest_known_micros(pipeline)
        return ReadOutcome(mark.cycle, (), {}, False, known_micros, known_micros)
    step = CycleStep(mark.cycle, mark.cycle + 1)
    replayed_rows = replayed_records(pipeline, step.committed, plan, *replay) if replay is not None else None
    is_local, left_since_micros = _commit_plan(pipeline, spark, raw, step, plan, replayed_rows)
    control = read_control(pipeline.lake, step.committed)
    facts = (step.committed, control.windows, control.records)
    outcome = ReadOutcome(*facts, True, clock_micros, plan.end_micros, is_local, left_since_micros)
    if outcome.interrupted:
        # The current lineage: a child that was read with its parent may be stuck, too.
        for partition in find_stuck(trace_lineage(pipeline), control.windows, plan.end_micros):
            LOGGER.warning("Pipeline %s: %s", pipeline.name, partition.describe())
    failures = outcome.failures
    permanent_errors = tuple(error for error in failures if not error.retryable)
    is_in_vain = len(failures) == len(control.windows) and not any(
        report.has_moved for report in control.windows
    )
    if failures and (permanent_errors or is_in_vain):
        raise (permanent_errors or failures)[0]
    return outcome


def _commit_plan(
    pipeline: Pipeline,
    spark: SparkSession,
    raw: Table,
    step: CycleStep,
    plan: ReadPlan,
    replayed_rows: pa.Table | None,
) -> tuple[bool, int | None]:
    """Read and commit a plan; return whether this process read it, and the age of what is left."""
    properties = _properties(plan, plan.left_since_micros)
    if commit_local(pipeline, raw, step, plan, properties, replayed_rows):
        return True, plan.left_since_micros
    with (
        pipeline.progress.step("read by Spark") as reading,
        pipeline.source.reading(),
        changed_settings(spark, PLANNED_ONCE),
    ):
        partitions, source_files = as_count(len(plan.windows), "partition"), plan.files
        reading.note = partitions if source_files is None else as_count(source_files, "file")
        tasks = max_tasks(pipeline, spark, step.before, plan)
        records = pipeline.source.read(spark, step.committed, plan, tasks)
        batches = (*records.local_batches, *(replayed_rows.to_batches() if replayed_rows is not None else ()))
        with data_file_writer(raw, ContentNotes) as writer:
            spark_files = data_files_of(records.through(writer, DATA_FILES).toArrow())
            files = (*spark_files, *writer.write(batches))
        left_since_micros = records.left_since_micros or plan.left_since_micros
        append_files(files, raw, step, _properties(plan, left_since_micros))
    return False, left_since_micros


def _properties(plan: ReadPlan, left_since_micros: int | None) -> dict[str, str]:
    """Return the entries of the summary of a plan's commit."""
    left_since = {LEFT_SINCE: str(left_since_micros)} if left_since_micros is not None else {}
    return {POSITION: str(plan.end_micros), **left_since}


def max_tasks(pipeline: Pipeline, spark: SparkSession, newest_cycle: int, plan: ReadPlan) -> int:
    """Return the maximum number of tasks in which Spark reads a plan.

    The estimate for the plan is the number of records of ``newest_cycle``, the newest committed one.
    """
    tasks = pipeline.settings.read_tasks
    if pipeline.capabilities.delivers_events:
        # Files are read one by one, so many small tasks share them better.
        return tasks
    # A task reads several partitions at a time: more tasks than run at once read no faster, and each costs
    # time.
    tasks = min(tasks, local_cores(spark) or tasks)
    if plan.finished_parents is None or _expected_records(pipeline, newest_cycle, plan) > RECORDS_PER_TASK:
        return tasks
    # If partitions of different tasks merge, neither task can continue with the child.
    return min(tasks, -(-len(plan.windows) // WINDOWS_PER_TASK))


def _expected_records(pipeline: Pipeline, newest_cycle: int, plan: ReadPlan) -> float:
    """Return the expected records of a plan at the rate of the last cycle; without one, inf if it is long."""
    control = read_control(pipeline.lake, newest_cycle)
    known_s = max((report.duration_s for report in control.windows), default=0.0)
    planned_s = max(window.duration_s for window in plan.windows)
    if not known_s:
        return math.inf if planned_s > LONG_S else 0.0
    return control.records.get(RecordKind.DATA_CHANGE, 0) * planned_s / known_s
