"""Initial copies of tables with existing rows, in chunk batches at the start of cycles."""

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import CdcError, CommitConflict, CopyExpired, LakeError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import ancestors_of, count_rows, head, read_mark
from cdc_platform.lake.commits.maintenance import expire_snapshots
from cdc_platform.lake.state.copies import COPY_BRANCH, CopyPlan, CopyProgress, load_copy_progress, load_plans
from cdc_platform.lake.state.copy_columns import replace_columns
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.schema.table_options import stored_schema
from cdc_platform.pipeline.copying.chunks import align_branch, copy_chunks, has_columns
from cdc_platform.pipeline.copying.copy_plans import find_new_tables, make_plans, plan_missing_copies
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.schema.table_ddl import make_table
from cdc_platform.pipeline.versions.attempts import PARALLEL_TABLES
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.handover import is_published
from cdc_platform.spark.frames.table_frames import read_current


@dataclass(frozen=True)
class CopyOutcome:
    """Result of one copy step, with the progress of the unfinished copies.

    ``unplanned`` are tables that the source could not divide into chunks. ``failure`` is the error that
    stopped a chunk batch or a plan: the other tables continue, and the next step tries again. ``notes``
    report copies that started over or were removed.
    """

    copies: tuple[CopyProgress, ...] = ()
    rows: int = 0
    unplanned: tuple[str, ...] = ()
    failure: CdcError | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_pending(self) -> bool:
        """Whether rows are still missing."""
        return bool(self.unplanned) or any(not progress.is_complete for progress in self.copies)


NO_COPY: Final = CopyOutcome()


@pipeline_step("copy")
def copy_tables(pipeline: Pipeline, spark: SparkSession) -> CopyOutcome:
    """Copy missing rows of the tables that are not in a cut yet, for about as long as the settings allow.

    A chunk is copied once despite interruptions: one commit has its rows and the note that it is done.

    Raises:
        CommitConflict: another run has planned the same copies.
    """
    end_s = time.monotonic() + pipeline.settings.copy_s
    if not pipeline.capabilities.can_be_copied:
        return NO_COPY
    removals = remove_orphans(pipeline, spark)
    fresh = find_new_tables(pipeline)
    if not fresh:
        return CopyOutcome(notes=removals)
    planning = plan_missing_copies(pipeline, fresh)
    copies_before = [_open_copy(pipeline, spark, plan) for plan in planning.plans]
    incomplete = [progress for progress in copies_before if not progress.is_complete]
    run = _Run(pipeline, spark, incomplete)
    with _copy_step(pipeline, incomplete) as step:
        while (chunk_batch := run.next_tables()) and run.failure is None:
            run.copy(chunk_batch)
            step.done, step.note = _count(run.copies.values())
            if time.monotonic() >= end_s:
                break
    copies = tuple(run.copies.values())
    for progress in [*copies, *(progress for progress in copies_before if progress.is_complete)]:
        if progress.is_complete and progress.is_mixed:
            align_branch(pipeline, progress)
    before, after = (sum(progress.rows for progress in some) for some in (incomplete, copies))
    failure = run.failure or planning.failure
    return CopyOutcome(copies, max(0, after - before), planning.failed, failure, (*removals, *run.notes))


@contextmanager
def _copy_step(pipeline: Pipeline, copies: Sequence[CopyProgress]) -> Iterator[Step]:
    """Yield the step of the copies, which continues after the chunks that earlier cycles copied."""
    (done, note), total = _count(copies), sum(len(progress.plan.chunks) for progress in copies)
    with pipeline.progress.step("initial copy", "chunks", total, done) as step:
        step.note = note
        yield step


def _count(copies: Collection[CopyProgress]) -> tuple[int, str]:
    """Return the number of copied chunks, and a note with the number of their rows."""
    return sum(
        len(progress.done) for progress in copies
    ), f"{sum(progress.rows for progress in copies):,} rows"


class _Run:
    """Work of one step: batches of chunks of several tables; the tables with the fewest left come first."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, copies: Sequence[CopyProgress]) -> None:
        self.pipeline, self.spark = pipeline, spark
        self.copies = {progress.plan.table: progress for progress in copies}
        self.failure: CdcError | None = None
        self.notes: list[str] = []
        self._prepared: set[str] = set()
        self._restarted: set[str] = set()

    def next_tables(self) -> list[CopyProgress]:
        """Return the copies that the next batch continues."""
        incomplete = [progress for progress in self.copies.values() if not progress.is_complete]
        return sorted(incomplete, key=lambda progress: len(progress.missing))[:PARALLEL_TABLES]

    def copy(self, chunk_batch: Sequence[CopyProgress]) -> None:
        """Copy the next chunks of some tables, each by a separate Spark job."""
        try:
            ready = [self._prepare(progress) for progress in chunk_batch]
        except CdcError as error:
            self.failure = error
            return
        with ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool:
            results = list(pool.map(self._try_copy, ready))
        for result in results:
            if isinstance(result, CopyProgress):
                self.copies[result.plan.table] = result
            else:
                self.failure = result

    def _try_copy(self, progress: CopyProgress) -> CopyProgress | CdcError:
        try:
            try:
                # Another run may have completed it meanwhile.
                is_complete = progress.is_complete
                return progress if is_complete else copy_chunks(self.pipeline, self.spark, progress)
            except CopyExpired as error:
                if progress.plan.table in self._restarted:
                    raise
                return self._restart(progress, error)
        except CdcError as error:
            return error

    def _prepare(self, progress: CopyProgress) -> CopyProgress:
        """Prepare a table for its copy, once in each step, and return the progress of the copy."""
        plan = progress.plan
        if plan.table in self._prepared:
            return progress
        self._prepared.add(plan.table)
        return self._open(plan)

    def _open(self, plan: CopyPlan) -> CopyProgress:
        return load_copy_progress(prepare_target(self.pipeline, self.spark, plan), plan)

    def _restart(self, progress: CopyProgress, error: CopyExpired) -> CopyProgress:
        """Plan a copy again at the source's present, once per step, so that a permanent failure shows."""
        table = progress.plan.table
        self._restarted.add(table)
        planning = make_plans(self.pipeline, [table], {table: progress.plan})
        if not planning.plans:
            raise planning.failure or error
        self.notes.append(
            f"The copy of `{table}` starts over after {len(progress.done)} of "
            f"{len(progress.plan.chunks)} chunks. {error}"
        )
        return self._open(planning.plans[0])


def _open_copy(pipeline: Pipeline, spark: SparkSession, plan: CopyPlan) -> CopyProgress:
    """Return the progress of a copy; create the table for a copy without rows, which is complete at once."""
    progress = load_copy_progress(pipeline.lake.table(plan.table), plan)
    log_micros = read_mark(pipeline.lake.system_table(LOG)).position_micros
    is_taken_over = progress.is_complete and log_micros is not None and log_micros >= plan.position_micros
    if not progress.is_complete or is_taken_over:
        # The stream may have taken over, and the table may already have newer columns of the log.
        return progress
    return load_copy_progress(prepare_target(pipeline, spark, plan), plan)


def prepare_target(pipeline: Pipeline, spark: SparkSession, plan: CopyPlan) -> Table:
    """Return the table for a copy, with the source's columns at the moment of the copy.

    A table with other columns is from an earlier plan. Its columns are replaced, and its chunks are copied
    again: chunks with other columns would not match the rest.

    Raises:
        CommitConflict: another run has planned the copy again, or has published the table.
        LakeError: the table has rows that are not from a copy.
    """
    schema = stored_schema(plan.schema, pipeline.options(plan.table))
    target = make_table(pipeline, spark, schema)
    _require_current(pipeline, plan)
    if has_columns(read_current(spark, pipeline.lake.spark_table(plan.table)).schema, schema):
        return target
    _require_unpublished(pipeline, target, plan)
    if count_rows(head(target)) != 0:
        raise LakeError(
            f"Table `{plan.table}` has other columns than its initial copy, and rows that are not from "
            "the pipeline. Move it away: the pipeline creates a table of this name."
        )
    batches = _batches_of(target)
    replace_columns(target, schema)
    expire_snapshots(spark, ".".join(target.name()), batches)
    return load_table(pipeline, plan.table)


def _require_current(pipeline: Pipeline, plan: CopyPlan) -> None:
    # After the table was loaded: the run of a newer plan replaces the columns of that version or a later one.
    stored_plan = load_plans(pipeline.lake).get(plan.table)
    if stored_plan is None or stored_plan.number != plan.number:
        raise plan.conflict()


def _require_unpublished(pipeline: Pipeline, target: Table, plan: CopyPlan) -> None:
    # After the table was loaded: each run that publishes that version later moves a branch of it first.
    if is_published(target, plan.table, newest_cut(pipeline.lake)):
        raise CommitConflict(
            f"Another run has published `{plan.table}` since this one planned its copy; the next cycle "
            "continues from there."
        )


def remove_orphans(pipeline: Pipeline, spark: SparkSession) -> tuple[str, ...]:
    """Remove the copied rows of tables that the source dropped before their copies were complete.

    The empty tables stay: nothing keeps another run from publishing a table while this one drops it.

    Returns:
        a sentence on each table.

    Raises:
        CommitConflict: another run is copying such a table; its rows stay for now.
    """
    histories, cut = pipeline.schema_history.tables.values(), newest_cut(pipeline.lake)
    names = [
        table.name for table in histories if table.is_dropped and not is_published(None, table.name, cut)
    ]
    plans = load_plans(pipeline.lake) if names else {}
    orphans = [
        name for name in names if name in plans and _discard_copy(pipeline.lake, spark, plans[name], cut)
    ]
    return tuple(
        f"The source dropped `{name}` before its copy was complete: the copied rows are removed."
        for name in orphans
    )


def _discard_copy(lake: Lake, spark: SparkSession, plan: CopyPlan, cut: Cut | None) -> bool:
    """Remove the rows of an incomplete copy; return False if the table has no such rows, or any other."""
    table = lake.table(plan.table)
    if table is None or is_published(table, plan.table, cut) or count_rows(head(table)) != 0:
        return False
    empty, copy = head(table), head(table, COPY_BRANCH)
    # Any run publishes a complete copy. The one that completes this copy meanwhile moves the branch first.
    if empty is None or copy in (None, empty) or load_copy_progress(table, plan).is_complete:
        return False
    batches = _batches_of(table)
    move_branch(table, COPY_BRANCH, empty.snapshot_id, tries=1)
    expire_snapshots(spark, ".".join(table.name()), batches)
    return True


def _batches_of(table: Table) -> list[int]:
    """Return the snapshots that the branch `copy` of a table has in addition to `main`."""
    main, chain = head(table), ancestors_of(table, head(table, COPY_BRANCH))
    return [snapshot.snapshot_id for snapshot in takewhile(lambda snapshot: snapshot != main, chain)]
