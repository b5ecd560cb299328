"""Histories: each tick ends the versions that its changes supersede and appends those that they make."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from cdc_platform.model.table_options import history_name, history_schema
from cdc_platform.model.table_schema import TableSchema, spark_type
from cdc_platform.pipeline.branch import (
    FELL_BACK,
    Attempt,
    count_matched,
    finished_head,
    load_table,
    marked_commits,
    published_head,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.merge import (
    PARALLEL_TABLES,
    SINGLE_TASK_CHANGES,
    SMALL_TABLE_ROWS,
    Build,
    MergeOutcome,
)
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.span import applied_tick, pending_span
from cdc_platform.spark.fold import PatchStats, measure_patch
from cdc_platform.spark.history import (
    append_versions,
    close_versions,
    create_history_sql,
    current_before,
    find_touched,
    make_versions,
)
from cdc_platform.spark.small import interpreted
from cdc_platform.spark.typed import type_changes


@dataclass(frozen=True)
class _Extension:
    """The typed changes of a span, the keys that they touch, and what is known of these."""

    changes: DataFrame
    touched: DataFrame
    view: str
    stats: PatchStats


def extend_history(pipeline: Pipeline, spark: SparkSession, table: str) -> MergeOutcome:
    """Bring the history of one table up to the log on its branch `tick`; readers see nothing of it yet.

    Raises:
        CommitConflict: another run worked on the same branch; nothing was published.
    """
    return extend_histories(pipeline, spark, [pipeline.table(table)])[0]


def extend_histories(
    pipeline: Pipeline, spark: SparkSession, schemas: Sequence[TableSchema]
) -> tuple[MergeOutcome, ...]:
    """Bring the histories of tables up to the log, several at a time; see `extend_history`.

    In the outcome, `appended` counts new versions and `updated` those that ended.
    """
    planned = [_plan(pipeline, spark, schema) for schema in schemas]
    builds = [build for build in planned if isinstance(build, Build)]
    built = {outcome.table: outcome for outcome in run_history_builds(pipeline, spark, builds)}
    return tuple(
        built[history_name(plan.schema.name)] if isinstance(plan, Build) else plan for plan in planned
    )


def _plan(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Build | MergeOutcome:
    """Return what is to be built, or the outcome when there is nothing to do or it is done already."""
    history = history_name(schema.name)
    ensure_history(pipeline, spark, schema)
    cut = newest_cut(pipeline.lake)
    found = load_table(pipeline, history)
    span = pending_span(pipeline, schema.name, applied_tick(found, history, cut))
    if span.changes == 0:
        return MergeOutcome(history, span.until_inclusive)
    done = finished_head(found)
    if done is not None and read_mark(found, BRANCH).tick == span.until_inclusive:
        fell_back = fact(done, FELL_BACK) == "true"
        return MergeOutcome(history, span.until_inclusive, done.snapshot_id, fell_back=fell_back)
    base = published_head(found, cut.tables.get(history) if cut is not None else None)
    if base is None:
        raise LakeError(f"Table `{history}` has no snapshot to build upon.")
    return Build(schema, base, span)


def ensure_history(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> None:
    """Create a table's history where it is missing, and add the columns that the source has got since."""
    history = history_schema(schema)
    target = pipeline.lake.spark_table(history.name)
    found = pipeline.lake.table(history.name)
    if found is None:
        version = pipeline.settings.lake.table_format_version
        spark.sql(create_history_sql(target, history, version))
        found = load_table(pipeline, history.name)
    if head(found) is None:
        # A branch can only be reset to a snapshot.
        spark.table(target).limit(0).writeTo(target).append()
    known = {field.name.lower() for field in found.schema().fields}
    missing = [column for column in history.columns if column.name.lower() not in known]
    if missing:
        added = ", ".join(f"{quote_spark(column.name)} {spark_type(column.type)}" for column in missing)
        spark.sql(f"ALTER TABLE {target} ADD COLUMNS ({added})")


def run_history_builds(
    pipeline: Pipeline, spark: SparkSession, builds: Sequence[Build]
) -> tuple[MergeOutcome, ...]:
    """Build the next versions of histories on their branches, each independent of the others."""
    if not builds:
        return ()
    token, tick = uuid4().hex, builds[0].span.until_inclusive
    attempts = [Attempt(history_name(build.schema.name), build.base, tick, token=token) for build in builds]
    with (
        interpreted(spark, when=all(map(_is_small, builds))),
        conflicts_as("Another run wrote to the same histories; nothing was published, so try again."),
        marked_commits(spark, attempts[0].properties()),
        ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool,
    ):
        believed = list(
            pool.map(lambda job: _extend(pipeline, spark, *job), zip(attempts, builds, strict=True))
        )
    return tuple(
        outcome if outcome is not None else _extend_anyway(pipeline, spark, attempt, build)
        for outcome, attempt, build in zip(believed, attempts, builds, strict=True)
    )


def _is_small(build: Build) -> bool:
    rows = count_rows(build.base)
    return build.span.changes <= SINGLE_TASK_CHANGES and rows is not None and rows <= SMALL_TABLE_ROWS


@contextmanager
def _prepared(pipeline: Pipeline, spark: SparkSession, build: Build) -> Iterator[_Extension]:
    """Read and type a span of the log, and forget it afterwards."""
    log = spark.table(pipeline.lake.spark_system_table(LOG)).where(
        (F.col("table_name") == build.schema.name)
        & (F.col("tick") > build.span.after_exclusive)
        & (F.col("tick") <= build.span.until_inclusive)
    )
    if build.span.changes <= SINGLE_TASK_CHANGES:
        log = log.coalesce(1)
    typed = type_changes(log, build.schema, has_patches=build.span.has_patches, has_origin=True)
    changes = typed.persist()
    touched = find_touched(changes, build.schema).persist()
    view = f"touched_{uuid4().hex}"
    touched.createOrReplaceTempView(view)
    try:
        yield _Extension(changes, touched, view, measure_patch(touched, build.schema))
    finally:
        spark.catalog.dropTempView(view)
        touched.unpersist()
        changes.unpersist()


def _extend(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome | None:
    """Append and close as the log says; None when the history lacks a key that existed."""
    with _prepared(pipeline, spark, build) as extension:
        existing = extension.stats.existing
        closes = existing > 0
        completion = attempt.completion(1 + int(closes), matched=existing if closes else None)
        built = _build(pipeline, spark, attempt, build, extension, completion, closes=closes, believes=True)
    lacks_keys = closes and count_matched(built) != existing
    return None if lacks_keys else _as_outcome(pipeline, attempt, built)


def _extend_anyway(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome:
    """Append, and close whatever is current of the touched keys: the source broke its word about them."""
    attempt = replace(attempt, fell_back=True, token=uuid4().hex)
    with (
        _prepared(pipeline, spark, build) as extension,
        marked_commits(spark, attempt.properties()),
    ):
        built = _build(
            pipeline, spark, attempt, build, extension, attempt.completion(2), closes=True, believes=False
        )
    return _as_outcome(pipeline, attempt, built)


def _build(  # noqa: PLR0913  what both ways have in common takes what both know
    pipeline: Pipeline,
    spark: SparkSession,
    attempt: Attempt,
    build: Build,
    extension: _Extension,
    completion: dict[str, str],
    *,
    closes: bool,
    believes: bool,
) -> Snapshot:
    target = pipeline.lake.spark_table(attempt.table, BRANCH)
    reset_branch(pipeline, spark, attempt)
    # Appended first: the count of what the newest snapshot has closed tells whether it is whole.
    versions = _versions(pipeline, spark, attempt, build, extension)
    properties = attempt.properties() | ({} if closes else completion)
    append_versions(versions, target, _columns(pipeline, attempt.table, spark), properties)
    if closes:
        with marked_commits(spark, completion):
            close_versions(spark, extension.view, target, build.schema, extension.stats, believes=believes)
    return verify_attempt(pipeline, attempt, 1 + int(closes))


def _versions(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, extension: _Extension
) -> DataFrame:
    changes, is_small = extension.changes, build.span.changes <= SINGLE_TASK_CHANGES
    if build.span.has_patches and count_rows(build.base) != 0:
        before = spark.read.option("versionAsOf", str(build.base.snapshot_id))
        history = before.table(pipeline.lake.spark_table(attempt.table))
        changes = changes.unionByName(
            current_before(history, extension.touched, build.schema, is_small=is_small)
        )
    versions = make_versions(changes, build.schema, has_patches=build.span.has_patches)
    return versions.coalesce(1) if is_small else versions


def _columns(pipeline: Pipeline, history: str, spark: SparkSession) -> list[tuple[str, str]]:
    fields = spark.table(pipeline.lake.spark_table(history)).schema.fields
    return [(field.name, field.dataType.simpleString()) for field in fields]


def _as_outcome(pipeline: Pipeline, attempt: Attempt, built: Snapshot) -> MergeOutcome:
    closed = count_matched(built)
    parent = load_table(pipeline, attempt.table).metadata.snapshot_by_id(built.parent_snapshot_id or -1)
    appended = parent if closed and parent is not None else built
    return MergeOutcome(
        table=attempt.table,
        tick=attempt.tick,
        snapshot_id=built.snapshot_id,
        appended=int(fact(appended, "added-records") or 0),
        updated=closed,
        fell_back=attempt.fell_back,
    )
