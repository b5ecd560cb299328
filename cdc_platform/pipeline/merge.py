"""The third step of a tick: each table is brought up to the log, on its branch."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits import BRANCH, count_rows, fact, read_mark
from cdc_platform.lake.cuts import Cut, newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.lake.writes import conflicts_as
from cdc_platform.model.evolution import ColumnVersion
from cdc_platform.model.exclusions import trusts_inserts
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.pipeline.adapt import convert_stored, empty_version, ensure_table
from cdc_platform.pipeline.branch import (
    FELL_BACK,
    Attempt,
    count_matched,
    finished_head,
    marked_commits,
    published_head,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.evolve import known_through
from cdc_platform.pipeline.handover import Handover, find_handover
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.span import LogSpan, applied_tick, pending_span, span_after
from cdc_platform.spark.fold import PatchStats, fold_changes, measure_patch
from cdc_platform.spark.merge import append_born, merge_everything, merge_existing
from cdc_platform.spark.small import interpreted
from cdc_platform.spark.typed import type_changes, unfit_values

SINGLE_TASK_CHANGES: Final = 50_000
"""Up to so many changes one task folds them: a shuffle costs more, and leaves a file for each task."""

SMALL_TABLE_ROWS: Final = 500_000
"""Up to so many rows a table is scanned without generated code where the changes are few, too."""

PARALLEL_TABLES: Final = 4
"""How many tables are merged at a time; planning a merge takes longer than a small one itself."""


@dataclass(frozen=True)
class MergeOutcome:
    """What one step did to a table's branch; ``snapshot_id`` is None when the log had nothing for it.

    ``fell_back`` tells that the source broke its word about which keys exist, so that the full
    merge ran.
    """

    table: str
    tick: int
    snapshot_id: int | None = None
    appended: int = 0
    updated: int = 0
    deleted: int = 0
    fell_back: bool = False


@dataclass(frozen=True)
class Patch:
    """The folded changes of one table, persisted and known to Spark under a name."""

    view: str
    frame: DataFrame
    stats: PatchStats
    schema: TableSchema
    has_patches: bool


@dataclass(frozen=True)
class Build:
    """A table's next version: what it is built upon, and the span of the log that brings it further.

    ``conversions`` are columns whose stored values take another type before that. Changes committed before
    ``begun_micros`` belong to a dropped table of the same name. Without ``trusts_inserts`` the log does not
    tell which keys the table has, since the change stream leaves changes out.
    """

    schema: TableSchema
    base: Snapshot
    span: LogSpan
    conversions: tuple[tuple[ColumnVersion, ColumnVersion], ...] = ()
    begun_micros: int | None = None
    trusts_inserts: bool = True


def merge_table(pipeline: Pipeline, spark: SparkSession, table: str) -> MergeOutcome:
    """Bring one table up to the log on the branch `tick`; readers of the table see nothing of it yet.

    Raises:
        CommitConflict: another run worked on the same branch; nothing was published.
        ValueUnfit: the log has a value that does not fit the type that its column has now.
    """
    return merge_tables(pipeline, spark, [pipeline.table(table)])[0]


def merge_tables(
    pipeline: Pipeline, spark: SparkSession, schemas: Sequence[TableSchema]
) -> tuple[MergeOutcome, ...]:
    """Bring tables up to the log, several at a time; see `merge_table`."""
    planned = [_plan(pipeline, spark, schema) for schema in schemas]
    builds = [build for build in planned if isinstance(build, Build)]
    built = {outcome.table: outcome for outcome in run_builds(pipeline, spark, builds)}
    return tuple(built[plan.schema.name] if isinstance(plan, Build) else plan for plan in planned)


def _plan(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Build | MergeOutcome:
    """Return what is to be built, or the outcome when there is nothing to do or it is done already."""
    table = schema.name
    found = ensure_table(pipeline, spark, schema)
    cut = newest_cut(pipeline.lake)
    handover = find_handover(pipeline, found, table, cut)
    span = _pending(pipeline, found, table, cut, handover)
    if handover is not None and not handover.is_ready:
        return MergeOutcome(table, span.until_inclusive)
    named = cut.tables.get(table) if cut is not None else None
    base = handover.base if handover is not None else published_head(found, named)
    if base is None:
        raise LakeError(f"Table `{table}` has no snapshot to build upon.")
    # Readers of a cut see the columns that its snapshots were made with.
    has_its_columns = base.schema_id == found.metadata.current_schema_id
    # The first version of a copied table is built even where the log has nothing upon the copy.
    is_level = span.changes == 0 and has_its_columns and handover is None
    if span.until_inclusive == 0 or is_level:
        return MergeOutcome(table, span.until_inclusive)
    done = finished_head(found)
    if done is not None and read_mark(found, BRANCH).tick == span.until_inclusive:
        fell_back = fact(done, FELL_BACK) == "true"
        return MergeOutcome(table, span.until_inclusive, done.snapshot_id, fell_back=fell_back)
    return plan_build(pipeline, spark, schema, base, span)


def _pending(
    pipeline: Pipeline, found: Table, table: str, cut: Cut | None, handover: Handover | None
) -> LogSpan:
    if handover is None or handover.position_micros is None:
        return pending_span(pipeline, table, applied_tick(found, table, cut))
    return span_after(pipeline, table, handover.position_micros)


def plan_build(
    pipeline: Pipeline, spark: SparkSession, schema: TableSchema, base: Snapshot, span: LogSpan
) -> Build:
    """Return how a span of the log brings a table further, with what has changed in its columns meanwhile.

    Raises:
        CommitConflict: another run has extended the log meanwhile.
    """
    history = known_through(pipeline, span.until_inclusive)
    known = history.tables.get(schema.name)
    if known is None:
        return Build(schema, base, span)
    evolved = known.schema_after(span.after_exclusive)
    begun = known.begun if known.begun is not None and known.begun.tick > span.after_exclusive else None
    empty = empty_version(pipeline, spark, schema.name) if begun is not None else None
    return Build(
        schema=evolved,
        base=empty or base,
        span=replace(span, has_patches=span.has_patches or evolved.is_evolving),
        conversions=known.conversions_after(span.after_exclusive),
        begun_micros=begun.micros if begun is not None else None,
        trusts_inserts=trusts_inserts(history, known),
    )


def run_builds(pipeline: Pipeline, spark: SparkSession, builds: Sequence[Build]) -> tuple[MergeOutcome, ...]:
    """Build the next versions of tables on their branches, each independent of the others."""
    if not builds:
        return ()
    token, tick = uuid4().hex, builds[0].span.until_inclusive
    attempts = [Attempt(build.schema.name, build.base, tick, token=token) for build in builds]
    with (
        interpreted(spark, when=all(map(_is_small, builds))),
        conflicts_as("Another run wrote to the same tables; nothing was published, the next tick goes on."),
        unfit_values(),
        marked_commits(spark, attempts[0].properties()),
        ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool,
    ):
        split = list(
            pool.map(lambda job: _split_build(pipeline, spark, *job), zip(attempts, builds, strict=True))
        )
    return tuple(
        outcome if outcome is not None else _full_build(pipeline, spark, attempt, build)
        for outcome, attempt, build in zip(split, attempts, builds, strict=True)
    )


def _is_small(build: Build) -> bool:
    rows = count_rows(build.base)
    return build.span.changes <= SINGLE_TASK_CHANGES and rows is not None and rows <= SMALL_TABLE_ROWS


@contextmanager
def _folded(pipeline: Pipeline, spark: SparkSession, build: Build) -> Iterator[Patch]:
    """Fold a span of the log into a patch, and forget it afterwards."""
    log = spark.table(pipeline.lake.spark_system_table(LOG)).where(
        (F.col("table_name") == build.schema.name)
        & (F.col("tick") > build.span.after_exclusive)
        & (F.col("tick") <= build.span.until_inclusive)
    )
    if build.begun_micros is not None:
        log = log.where(F.col("commit_timestamp") >= F.lit(to_datetime(build.begun_micros)))
    if build.span.after_micros is not None:
        log = log.where(F.col("commit_timestamp") > F.lit(to_datetime(build.span.after_micros)))
    if build.span.changes <= SINGLE_TASK_CHANGES:
        log = log.coalesce(1)
    typed = type_changes(log, build.schema, has_patches=build.span.has_patches)
    frame = fold_changes(typed, build.schema, has_patches=build.span.has_patches).persist()
    view = f"patch_{uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        stats = measure_patch(frame, build.schema)
        yield Patch(view, frame, stats, build.schema, build.span.has_patches)
    finally:
        spark.catalog.dropTempView(view)
        frame.unpersist()


def _split_build(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build
) -> MergeOutcome | None:
    """Append what was born and merge what existed; None when the table lacks a key that existed."""
    if not build.trusts_inserts:
        return None
    with _folded(pipeline, spark, build) as patch:
        stats, target = patch.stats, pipeline.lake.spark_table(attempt.table, BRANCH)
        appends, merges = stats.appended > 0 or stats.existing == 0, stats.existing > 0
        commits = len(build.conversions) + int(appends) + int(merges)
        _reset(pipeline, spark, attempt, build)
        if appends:
            completion = {} if merges else attempt.completion(commits)
            append_born(patch.frame, target, patch.schema, attempt.properties() | completion)
        if merges:
            with marked_commits(spark, attempt.completion(commits, matched=stats.existing)):
                merge_existing(spark, patch.view, target, patch.schema, stats, has_patches=patch.has_patches)
        built = verify_attempt(pipeline, attempt, commits)
    lacks_keys = merges and count_matched(built) != stats.existing
    return None if lacks_keys else _as_outcome(attempt, built, stats)


def _reset(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> None:
    """Begin an attempt: the branch is at the base, with one commit for each conversion upon it."""
    reset_branch(pipeline, spark, attempt)
    if build.conversions:
        with marked_commits(spark, attempt.properties()):
            for old, new in build.conversions:
                convert_stored(pipeline, spark, build.schema, old, new)


def _full_build(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome:
    attempt = replace(attempt, fell_back=True, token=uuid4().hex)
    with _folded(pipeline, spark, build) as patch:
        target = pipeline.lake.spark_table(attempt.table, BRANCH)
        _reset(pipeline, spark, attempt, build)
        commits = len(build.conversions) + 1
        with marked_commits(spark, attempt.properties() | attempt.completion(commits)):
            merge_everything(
                spark, patch.view, target, patch.schema, patch.stats, has_patches=patch.has_patches
            )
        built = verify_attempt(pipeline, attempt, commits)
    return _as_outcome(attempt, built, patch.stats)


def _as_outcome(attempt: Attempt, built: Snapshot, stats: PatchStats) -> MergeOutcome:
    return MergeOutcome(
        table=attempt.table,
        tick=attempt.tick,
        snapshot_id=built.snapshot_id,
        appended=stats.appended,
        updated=stats.updated,
        deleted=stats.deleted,
        fell_back=attempt.fell_back,
    )
