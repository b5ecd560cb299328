"""Copying tables that hold data already: in chunk batches that begin cycles, until the stream takes over."""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses
from pyspark.sql.types import StructType

from cdc_platform.errors import (
    CdcError,
    CommitConflict,
    CopyExpired,
    LakeError,
    SourceError,
    as_source_error,
)
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import head, read_mark
from cdc_platform.lake.state.copies import (
    COPY,
    COPY_BRANCH,
    ChunkBatch,
    CopyPlan,
    CopyProgress,
    load_copy_progress,
    load_plans,
    save_plans,
)
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.base.progress import Step, as_step
from cdc_platform.model.schema.table_options import DELETED
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.copying.copy_target import prepare_target, remove_orphans
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.versions.attempts import PARALLEL_TABLES
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.handover import current_plans, is_made_by_log, is_published
from cdc_platform.sources.loading import make_known
from cdc_platform.spark.frames.table_frames import read_current

SHORT_BATCH_S: Final = 10.0
LONG_BATCH_S: Final = 40.0
"""After a short batch of chunks the next one is twice as large, after a long one half as large."""
PARALLEL_RATIO: Final = 1.5
"""A larger batch that takes less than this many times as long as the one before was copied in parallel."""

PLANNERS: Final = 8
"""Number of tables planned at a time: the source answers several small queries about each."""

_SOURCE_ERROR: Final = re.compile(r"cdc_platform\.errors\.(\w+): (.*)")


@dataclass(frozen=True)
class CopyOutcome:
    """Result of one copy step, and where the unfinished copies stand.

    ``unplanned`` are tables that the source could not divide into chunks. ``failure`` is what stopped a chunk
    batch or a plan: the other tables go on, and the next step tries again. ``notes`` report copies that began
    again or were removed.
    """

    copies: tuple[CopyProgress, ...] = ()
    rows: int = 0
    unplanned: tuple[str, ...] = ()
    failure: CdcError | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_going_on(self) -> bool:
        """Whether rows are still missing."""
        return bool(self.unplanned) or any(not progress.is_complete for progress in self.copies)


NOTHING_COPIED: Final = CopyOutcome()


@as_step("copy")
def copy_tables(pipeline: Pipeline, spark: SparkSession) -> CopyOutcome:
    """Copy what is missing of the tables that no cut has named yet, for about as long as the settings say.

    Whatever is interrupted, a chunk is copied once: its rows and the note that it is done are one commit.

    Raises:
        CommitConflict: another run has planned the same copies.
    """
    end_s = time.monotonic() + pipeline.settings.copy_s
    if not pipeline.capabilities.can_be_copied:
        return NOTHING_COPIED
    removed = remove_orphans(pipeline, spark)
    fresh = _find_fresh(pipeline)
    if not fresh:
        return CopyOutcome(notes=removed)
    planned = _plan_missing(pipeline, fresh)
    opened = [_open_copy(pipeline, spark, plan) for plan in planned.plans]
    unfinished = [progress for progress in opened if not progress.is_complete]
    run = _Run(pipeline, spark, unfinished)
    with _copy_step(pipeline, unfinished) as step:
        while (chunk_batch := run.next_tables()) and run.failure is None:
            run.copy(chunk_batch)
            step.done, step.note = _count(run.copies.values())
            if time.monotonic() >= end_s:
                break
    copies = tuple(run.copies.values())
    for progress in [*copies, *(progress for progress in opened if progress.is_complete)]:
        if progress.is_complete and progress.is_mixed:
            _level_branch(pipeline, progress)
    before, after = (sum(progress.rows for progress in some) for some in (unfinished, copies))
    failure = run.failure or planned.failure
    return CopyOutcome(copies, max(0, after - before), planned.failed, failure, (*removed, *run.notes))


@contextmanager
def _copy_step(pipeline: Pipeline, copies: Sequence[CopyProgress]) -> Iterator[Step]:
    """Yield the step of the copies; it goes on from the chunks that earlier cycles have copied."""
    (done, note), total = _count(copies), sum(len(progress.plan.chunks) for progress in copies)
    with pipeline.progress.step("initial copy", "chunks", total, done) as step:
        step.note = note
        yield step


def _count(copies: Collection[CopyProgress]) -> tuple[int, str]:
    """Return how many chunks are copied, and their rows in words."""
    return sum(
        len(progress.done) for progress in copies
    ), f"{sum(progress.rows for progress in copies):,} rows"


class _Run:
    """One step's work: chunk_batches over several tables, those with the least left first."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, copies: Sequence[CopyProgress]) -> None:
        self.pipeline, self.spark = pipeline, spark
        self.copies = {progress.plan.table: progress for progress in copies}
        self.failure: CdcError | None = None
        self.notes: list[str] = []
        self._prepared: set[str] = set()
        self._restarted: set[str] = set()
        if copies:
            make_known(spark, pipeline.copy_source.copy_format())

    def next_tables(self) -> list[CopyProgress]:
        """Return the copies that the next chunk_batch goes on with."""
        unfinished = [progress for progress in self.copies.values() if not progress.is_complete]
        return sorted(unfinished, key=lambda progress: len(progress.missing))[:PARALLEL_TABLES]

    def copy(self, chunk_batch: Sequence[CopyProgress]) -> None:
        """Copy the next chunks of some tables, each by a Spark job of its own."""
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
        """Make a table ready for its copy, once in each step, and return where the copy stands."""
        plan = progress.plan
        if plan.table in self._prepared:
            return progress
        self._prepared.add(plan.table)
        return self._open(plan)

    def _open(self, plan: CopyPlan) -> CopyProgress:
        return load_copy_progress(prepare_target(self.pipeline, self.spark, plan), plan)

    def _restart(self, progress: CopyProgress, error: CopyExpired) -> CopyProgress:
        """Plan a copy again at the source's present; once a step, so that what fails for good shows."""
        table = progress.plan.table
        self._restarted.add(table)
        planned = _make_plans(self.pipeline, [table], {table: progress.plan})
        if not planned.plans:
            raise planned.failure or error
        self.notes.append(
            f"The copy of `{table}` starts over after {len(progress.done)} of "
            f"{len(progress.plan.chunks)} chunks. {error}"
        )
        return self._open(planned.plans[0])


@dataclass(frozen=True)
class _Planned:
    """Plans that are kept in the lake, the tables for which there is none, and why."""

    plans: tuple[CopyPlan, ...]
    failed: tuple[str, ...] = ()
    failure: SourceError | None = None


def _find_fresh(pipeline: Pipeline) -> list[str]:
    """Return the tables that no cut has named yet, and that the source has."""
    cut, lake = newest_cut(pipeline.lake), pipeline.lake
    unwatched = {name for name, columns in pipeline.schema_history.tables.items() if not columns.is_watched}
    unnamed = [table.name for table in pipeline.tables if cut is None or table.name not in cut.tables]
    return [
        name for name in unnamed if name not in unwatched and not is_published(lake.table(name), name, cut)
    ]


def _plan_missing(pipeline: Pipeline, tables: Sequence[str]) -> _Planned:
    """Return the plans of tables, made now where need be; none for those that the log alone makes."""
    present = current_plans(pipeline)
    plans = tuple(present[table] for table in tables if table in present)
    missing = [table for table in tables if table not in present and not is_made_by_log(pipeline, table)]
    if not missing or not pipeline.settings.copies_first:
        return _Planned(plans)
    made = _make_plans(pipeline, missing, load_plans(pipeline.lake))
    return replace(made, plans=plans + made.plans)


def _make_plans(pipeline: Pipeline, names: Sequence[str], before: Mapping[str, CopyPlan]) -> _Planned:
    """Plan the copies of some tables at one moment, the source's present, and keep the plans.

    A copy has the columns of that moment, whatever the log has shown until now; where the log passes it,
    the plan tells the columns there (`evolve.py`). A table that is gone at the moment has no plan.

    Raises:
        CommitConflict: another run has planned the same copies, or brought the log beyond the moment.
    """
    # The stream must begin before the copy, or changes between the two would be in neither.
    trace_lineage(pipeline)
    position_micros = pipeline.source.clock_micros() - 1

    planner = pipeline.copy_source.plan_copies(position_micros)
    tables = [table for table in pipeline.read_schema(position_micros).tables if table.name in names]

    def plan(table: TableSchema) -> CopyPlan | SourceError:
        try:
            chunks = planner.chunks(table, pipeline.settings.copy_chunk_rows)
        except SourceError as error:
            return error
        number = before[table.name].number + 1 if table.name in before else 1
        columns = pipeline.copy_source.copy_columns(table)
        return CopyPlan(table.name, number, position_micros, time.time_ns() // 1000, columns, chunks)

    with (
        pipeline.progress.step("plan of the initial copy", "tables", len(tables)) as step,
        ThreadPoolExecutor(max_workers=PLANNERS) as pool,
    ):
        made = list(pool.map(step.counting(plan), tables))
    plans = tuple(plan for plan in made if isinstance(plan, CopyPlan))
    if plans:
        _refuse_passed(pipeline, position_micros)
    save_plans(pipeline.lake, plans)
    failures = {table.name: plan for table, plan in zip(tables, made, strict=True) if plan not in plans}
    errors_met = [plan for plan in failures.values() if isinstance(plan, SourceError)]
    return _Planned(plans, tuple(failures), errors_met[0] if errors_met else None)


def _refuse_passed(pipeline: Pipeline, position_micros: int) -> None:
    reached = read_mark(pipeline.lake.system_table(LOG)).position_micros
    if reached is not None and reached > position_micros:
        raise CommitConflict(
            "Another run has brought the log beyond the moment of the initial copies that this one was "
            "planning; the next cycle plans them again."
        )


def _open_copy(pipeline: Pipeline, spark: SparkSession, plan: CopyPlan) -> CopyProgress:
    """Return where a copy stands; the table of one that has all of its rows is there then, if it has none."""
    progress = load_copy_progress(pipeline.lake.table(plan.table), plan)
    reached = read_mark(pipeline.lake.system_table(LOG)).position_micros
    is_taken_over = progress.is_complete and reached is not None and reached >= plan.position_micros
    if not progress.is_complete or is_taken_over:
        # The stream may have taken over, and the table be on its way with the log's columns.
        return progress
    return load_copy_progress(prepare_target(pipeline, spark, plan), plan)


def copy_chunks(pipeline: Pipeline, spark: SparkSession, progress: CopyProgress) -> CopyProgress:
    """Copy the next chunks of a table in one commit on its branch `copy`, and return where it stands then.

    Raises:
        CopyExpired: the source no longer keeps the version that the copy reads.
        SourceError: some chunk could not be read; nothing was committed.
    """
    plan, begun_micros = progress.plan, time.time_ns() // 1000
    base = _level_branch(pipeline, progress)
    own = progress.missing[: batch_chunks(progress, pipeline.opened_micros)]
    chunk_batch = ChunkBatch(plan.number, base, progress.done | frozenset(own), len(own), begun_micros)
    options = pipeline.copy_source.copy_options(
        plan.columns, plan.position_micros, [plan.chunks[chunk] for chunk in own]
    )
    rows = spark.read.format(pipeline.copy_source.copy_format().name()).options(**options).load()
    target = pipeline.lake.spark_table(plan.table, COPY_BRANCH)
    fitted = rows.select(*_fitted(rows, read_current(spark, target).schema))
    with _source_errors():
        fitted.writeTo(target).option(f"snapshot-property.{COPY}", chunk_batch.to_text()).append()
    return load_copy_progress(load_table(pipeline, plan.table), plan)


def _level_branch(pipeline: Pipeline, progress: CopyProgress) -> int:
    """Point the branch at the newest commit that counts, and return that snapshot."""
    table = progress.plan.table
    stored = load_table(pipeline, table)
    base = progress.head or head(stored)
    if base is None:
        raise LakeError(
            f"Table `{table}` has no snapshot to copy upon: somebody else has changed it. Drop it in the "
            "lake; the next cycle recreates it."
        )
    if progress.head is None or progress.is_mixed:
        move_branch(stored, COPY_BRANCH, base.snapshot_id)
    return base.snapshot_id


def batch_chunks(progress: CopyProgress, opened_micros: int) -> int:
    """Return how many chunks the next batch has: one at first, then a number that takes a moderate time.

    Batches grow while they are short, and while more chunks take hardly longer than fewer did. Commits of an
    earlier process do not count: it may have died of a batch that was too long for it to finish.

    Args:
        progress: where the copy stands.
        opened_micros: when this process opened the pipeline, by the clock of this machine.
    """
    own = [batch for batch in progress.batches if batch.begun_micros >= opened_micros]
    if not own:
        return 1
    last, before = own[0], own[1] if len(own) > 1 else None
    if last.seconds > LONG_BATCH_S:
        return max(1, last.chunks // 2)
    is_parallel = before is None or (
        last.chunks > before.chunks and last.seconds < PARALLEL_RATIO * before.seconds
    )
    return 2 * last.chunks if last.seconds < SHORT_BATCH_S or is_parallel else last.chunks


def _fitted(rows: DataFrame, target: StructType) -> Iterator[Column]:
    """Yield the table's columns: those of the copy, and those that its options add."""
    for field in target.fields:
        missing = F.lit(False) if field.name == DELETED else F.lit(None).cast(field.dataType)
        value = F.col(quote_spark(field.name)) if field.name in rows.columns else missing
        yield value.alias(field.name)


@contextmanager
def _source_errors() -> Iterator[None]:
    """Raise the error of the source that a task met, which reaches us as text, as itself.

    Raises:
        SourceError: it.
    """
    try:
        yield
    except Exception as error:
        names = _SOURCE_ERROR.findall(str(error))
        if not names:
            raise
        name, message = names[-1]
        raise as_source_error(name, message) from error
