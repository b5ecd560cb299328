"""The third step of a tick: each table is brought up to the log, on its branch."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits import BRANCH, count_rows, fact, head, read_mark
from cdc_platform.lake.cuts import newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.lake.writes import conflicts_as
from cdc_platform.model.names import quote_spark
from cdc_platform.model.table_options import keeps_deleted
from cdc_platform.model.table_schema import TableSchema, spark_type
from cdc_platform.pipeline.branch import (
    FELL_BACK,
    Attempt,
    count_matched,
    empty_version,
    finished_head,
    load_table,
    marked_commits,
    published_head,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.soft_delete import fold_with_deleted, lacks_deleted, tell_of_rebuild
from cdc_platform.pipeline.span import LogSpan, applied_tick, pending_span
from cdc_platform.spark.fold import PatchStats, fold_changes, measure_patch
from cdc_platform.spark.merge import append_born, create_table_sql, merge_everything, merge_existing
from cdc_platform.spark.small import interpreted
from cdc_platform.spark.typed import type_changes

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
    """A table's next version: what it is built upon, and the span of the log that brings it further."""

    schema: TableSchema
    base: Snapshot
    span: LogSpan


def merge_table(pipeline: Pipeline, spark: SparkSession, table: str) -> MergeOutcome:
    """Bring one table up to the log on the branch `tick`; readers of the table see nothing of it yet.

    Raises:
        CommitConflict: another run worked on the same branch; nothing was published.
    """
    return merge_tables(pipeline, spark, [pipeline.table(table)])[0]


def merge_tables(
    pipeline: Pipeline, spark: SparkSession, schemas: Sequence[TableSchema]
) -> tuple[MergeOutcome, ...]:
    """Bring tables up to the log, several at a time; see `merge_table`."""
    planned = [_plan(pipeline, spark, pipeline.stored(schema.name)) for schema in schemas]
    builds = [build for build in planned if isinstance(build, Build)]
    built = {outcome.table: outcome for outcome in run_builds(pipeline, spark, builds)}
    return tuple(built[plan.schema.name] if isinstance(plan, Build) else plan for plan in planned)


def _plan(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Build | MergeOutcome:
    """Return what is to be built, or the outcome when there is nothing to do or it is done already."""
    table = schema.name
    ensure_table(pipeline, spark, schema)
    cut = newest_cut(pipeline.lake)
    found = load_table(pipeline, table)
    base = published_head(found, cut.tables.get(table) if cut is not None else None)
    is_anew = lacks_deleted(found, base, schema)
    span = pending_span(pipeline, table, 0 if is_anew else applied_tick(found, table, cut))
    if span.changes == 0:
        return MergeOutcome(table, span.until_inclusive)
    done = finished_head(found)
    if (
        done is not None
        and read_mark(found, BRANCH).tick == span.until_inclusive
        and not lacks_deleted(found, done, schema)
    ):
        fell_back = fact(done, FELL_BACK) == "true"
        return MergeOutcome(table, span.until_inclusive, done.snapshot_id, fell_back=fell_back)
    if is_anew:
        tell_of_rebuild(schema)
        base = empty_version(pipeline, spark, table)
    if base is None:
        raise LakeError(f"Table `{table}` has no snapshot to build upon.")
    return Build(schema, base, span)


def ensure_table(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> None:
    """Create the table where it is missing, and add the columns that the source has got since."""
    target = pipeline.lake.spark_table(schema.name)
    found = pipeline.lake.table(schema.name)
    if found is None:
        version = pipeline.settings.lake.table_format_version
        spark.sql(create_table_sql(target, schema, version))
        found = load_table(pipeline, schema.name)
    if head(found) is None:
        # A branch can only be reset to a snapshot.
        spark.table(target).limit(0).writeTo(target).append()
    known = {field.name.lower() for field in found.schema().fields}
    missing = [column for column in schema.columns if column.name.lower() not in known]
    if missing:
        added = ", ".join(f"{quote_spark(column.name)} {spark_type(column.type)}" for column in missing)
        spark.sql(f"ALTER TABLE {target} ADD COLUMNS ({added})")


def run_builds(pipeline: Pipeline, spark: SparkSession, builds: Sequence[Build]) -> tuple[MergeOutcome, ...]:
    """Build the next versions of tables on their branches, each independent of the others."""
    if not builds:
        return ()
    token, tick = uuid4().hex, builds[0].span.until_inclusive
    attempts = [Attempt(build.schema.name, build.base, tick, token=token) for build in builds]
    with (
        interpreted(spark, when=all(map(_is_small, builds))),
        conflicts_as("Another run wrote to the same tables; nothing was published, the next tick goes on."),
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
    if build.span.changes <= SINGLE_TASK_CHANGES:
        log = log.coalesce(1)
    frame = _fold(pipeline, spark, log, build).persist()
    view = f"patch_{uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        stats = measure_patch(frame, build.schema)
        has_patches = build.span.has_patches or keeps_deleted(build.schema)
        yield Patch(view, frame, stats, build.schema, has_patches)
    finally:
        spark.catalog.dropTempView(view)
        frame.unpersist()


def _fold(pipeline: Pipeline, spark: SparkSession, log: DataFrame, build: Build) -> DataFrame:
    if keeps_deleted(build.schema):
        is_small = build.span.changes <= SINGLE_TASK_CHANGES
        return fold_with_deleted(pipeline, spark, log, build.schema, build.base, is_small=is_small)
    typed = type_changes(log, build.schema, has_patches=build.span.has_patches)
    return fold_changes(typed, build.schema, has_patches=build.span.has_patches)


def _split_build(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build
) -> MergeOutcome | None:
    """Append what was born and merge what existed; None when the table lacks a key that existed."""
    with _folded(pipeline, spark, build) as patch:
        stats, target = patch.stats, pipeline.lake.spark_table(attempt.table, BRANCH)
        appends, merges = stats.appended > 0 or stats.existing == 0, stats.existing > 0
        commits = int(appends) + int(merges)
        reset_branch(pipeline, spark, attempt)
        if appends:
            completion = {} if merges else attempt.completion(commits)
            append_born(patch.frame, target, patch.schema, attempt.properties() | completion)
        if merges:
            with marked_commits(spark, attempt.completion(commits, matched=stats.existing)):
                merge_existing(spark, patch.view, target, patch.schema, stats, has_patches=patch.has_patches)
        built = verify_attempt(pipeline, attempt, commits)
    lacks_keys = merges and count_matched(built) != stats.existing
    return None if lacks_keys else _as_outcome(attempt, built, stats)


def _full_build(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome:
    attempt = replace(attempt, fell_back=True, token=uuid4().hex)
    with _folded(pipeline, spark, build) as patch:
        target = pipeline.lake.spark_table(attempt.table, BRANCH)
        reset_branch(pipeline, spark, attempt)
        with marked_commits(spark, attempt.properties() | attempt.completion(commits=1)):
            merge_everything(
                spark, patch.view, target, patch.schema, patch.stats, has_patches=patch.has_patches
            )
        built = verify_attempt(pipeline, attempt, commits=1)
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
