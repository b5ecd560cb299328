"""Histories: each cycle ends the versions that its changes supersede, and appends new versions."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.commits.commits import BRANCH, number_of
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.histories.history_plan import HistoryBuild, plan_history
from cdc_platform.pipeline.histories.history_remake import find_row_keys, forget_versions, remake_versions
from cdc_platform.pipeline.histories.local_history import (
    LocalChange,
    commit_versions,
    find_all_versions,
    find_ended_versions,
    find_local_history,
)
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.merging.next_versions import build_versions, catch_up
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.table_ddl import convert_stored
from cdc_platform.pipeline.versions.branch import (
    Attempt,
    count_matched,
    load_table,
    marked_commits,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.versions.change_source import read_changes
from cdc_platform.pipeline.versions.lake_frames import read_table
from cdc_platform.pipeline.versions.recent_log import read_recent, read_recent_span
from cdc_platform.spark.frames.table_frames import cache_frame, cache_view, read_current
from cdc_platform.spark.tables.net_changes import NetChangeStats, measure_net_changes
from cdc_platform.spark.tables.row_versions import (
    append_versions,
    close_versions,
    current_before,
    find_touched,
    make_versions,
    reaches_back,
)

NO_KEYS: Final = NetChangeStats(0, 0, 0)


@dataclass(frozen=True)
class _Extension:
    """The typed changes of a span, the keys that they touch, and the versions that these end.

    Without ``local``, Spark finds the versions by the view of the keys and their statistics.
    """

    changes: DataFrame
    touched_keys: DataFrame
    local: LocalChange | None
    view: str = ""
    stats: NetChangeStats = NO_KEYS


def extend_histories(
    pipeline: Pipeline, spark: SparkSession, schemas: Sequence[TableSchema]
) -> tuple[MergeOutcome, ...]:
    """Bring the histories of tables up to date with the log; see `merge_tables`.

    In an outcome, `appended` counts new versions and `updated` those that ended.

    Raises:
        CommitConflict: another run worked on the same branches; nothing was published.
    """
    return catch_up(
        pipeline,
        {history_name(schema.name): schema for schema in schemas},
        partial(plan_history, pipeline, spark),
        partial(run_history_builds, pipeline, spark),
    )


def run_history_builds(
    pipeline: Pipeline, spark: SparkSession, builds: Sequence[HistoryBuild], cut: Cut | None
) -> tuple[MergeOutcome, ...]:
    """Build the next versions of histories on their branches; see `run_builds`."""
    with pipeline.progress.step("extend histories", "tables", len(builds)) as step:
        recent_log = read_recent(pipeline, [build.source.span for build in builds])
        builds = [replace(build, recent_log=recent_log) for build in builds]
        return build_versions(pipeline, spark, step, builds, cut, (_extend, _extend_anyway))


def _read_changes(pipeline: Pipeline, spark: SparkSession, build: HistoryBuild) -> DataFrame:
    source = build.source
    log = read_recent_span(pipeline, spark, source.schema.name, source.span, build.recent_log)
    changes = read_changes(pipeline, spark, source, log, has_origin=True)
    return changes.coalesce(1) if build.has_few_changes else changes


@contextmanager
def _prepare(
    pipeline: Pipeline, spark: SparkSession, build: HistoryBuild, *, trusts_inserts: bool
) -> Iterator[_Extension]:
    """Read and type a span of the log, and release it afterwards."""
    schema = build.source.schema
    with ExitStack() as cache:
        changes = cache_frame(cache, _read_changes(pipeline, spark, build))
        touched_keys = find_touched(changes, schema)
        local = find_ended_versions(pipeline, build, touched_keys, trusts_inserts=trusts_inserts)
        if local is not None:
            yield _Extension(changes, touched_keys, local)
            return
        rows = cache_frame(cache, touched_keys)
        view, stats = cache_view(cache, rows), measure_net_changes(rows, schema)
        yield _Extension(changes, rows, None, view, stats)


def _extend(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild
) -> MergeOutcome | None:
    """Append and close versions with trust in the log; None if the history lacks a key that existed."""
    if build.begins:
        return _begin_history(pipeline, spark, attempt, build)
    if not pipeline.capabilities.comes_in_order:
        return _remake(pipeline, spark, attempt, build)
    if not build.trusts_inserts:
        return _extend_anyway(pipeline, spark, attempt, build)
    with _prepare(pipeline, spark, build, trusts_inserts=True) as extension:
        local, existing = extension.local, extension.stats.existing
        if local is not None:
            is_whole = not local.lacks_keys
            return _build_locally(pipeline, spark, attempt, build, extension, local) if is_whole else None
        version = _build(pipeline, spark, attempt, build, extension, closes=existing > 0)
    lacks_keys = existing > 0 and count_matched(version) != existing
    return None if lacks_keys else _as_outcome(pipeline, attempt, version)


def _extend_anyway(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild
) -> MergeOutcome:
    """Append versions, and close all current ones of the touched keys, without trust in the source."""
    with _prepare(pipeline, spark, build, trusts_inserts=False) as extension:
        if pipeline.capabilities.delivers_events and _reaches_back(
            pipeline, spark, attempt, build, extension
        ):
            return _remake(pipeline, spark, attempt, build)
        if extension.local is not None:
            return _build_locally(pipeline, spark, attempt, build, extension, extension.local)
        version = _build(pipeline, spark, attempt, build, extension, closes=True)
    return _as_outcome(pipeline, attempt, version)


def _reaches_back(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild, extension: _Extension
) -> bool:
    if extension.local is not None:
        return extension.local.reaches_back
    history = read_table(pipeline, spark, attempt.table, attempt.base.snapshot_id)
    return reaches_back(history, extension.touched_keys, build.source.schema, is_small=build.has_few_changes)


def _begin_history(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild
) -> MergeOutcome:
    """Append the first versions; no earlier version can end in these changes."""
    table = reset_branch(pipeline, attempt)
    versions = _make_versions(_read_changes(pipeline, spark, build), build)
    local = find_local_history(pipeline, build)
    if local is not None:
        return commit_versions(table, attempt, LocalChange(local), versions.toArrow())
    _append(pipeline, spark, versions, attempt, attempt.completion(1))
    return _as_outcome(pipeline, attempt, verify_attempt(pipeline, attempt, 1))


def _remake(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild) -> MergeOutcome:
    """Rebuild the versions of all touched keys: a change that came late may lie between older ones."""
    row_keys = find_row_keys(pipeline, spark, build)
    versions = remake_versions(pipeline, spark, build)
    local = find_all_versions(pipeline, build, row_keys)
    if local is not None:
        return commit_versions(reset_branch(pipeline, attempt), attempt, local, versions.toArrow())
    commits = forget_versions(pipeline, spark, attempt, build, row_keys) + 1
    _append(pipeline, spark, versions, attempt, attempt.completion(commits))
    return _as_outcome(pipeline, attempt, verify_attempt(pipeline, attempt, commits))


def _build_locally(
    pipeline: Pipeline,
    spark: SparkSession,
    attempt: Attempt,
    build: HistoryBuild,
    extension: _Extension,
    local: LocalChange,
) -> MergeOutcome:
    """Append versions and end those that they supersede, in one commit."""
    table = reset_branch(pipeline, attempt)
    versions = _new_versions(pipeline, spark, attempt, build, extension)
    return commit_versions(table, attempt, local, versions.toArrow())


def _build(
    pipeline: Pipeline,
    spark: SparkSession,
    attempt: Attempt,
    build: HistoryBuild,
    extension: _Extension,
    *,
    closes: bool,
) -> Snapshot:
    """Append versions, then end the versions that they supersede, by the log or without trust in it."""
    schema, stats = build.source.schema, extension.stats
    trusts_inserts = build.trusts_inserts and not attempt.fell_back
    target = pipeline.lake.spark_table(attempt.table, BRANCH)
    reset_branch(pipeline, attempt)
    commits = convert_stored(pipeline, spark, attempt.table, build.conversions) + 1 + int(closes)
    closed_rows = stats.existing if closes and trusts_inserts else None
    completion = attempt.completion(commits, closed_rows=closed_rows)
    versions = _new_versions(pipeline, spark, attempt, build, extension)
    # Appended first: the number of versions that the newest snapshot closed shows whether it is complete.
    _append(pipeline, spark, versions, attempt, {} if closes else completion)
    if closes:
        with marked_commits(spark, completion):
            close_versions(spark, extension.view, target, schema, stats, trusts_inserts=trusts_inserts)
    return verify_attempt(pipeline, attempt, commits)


def _new_versions(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild, extension: _Extension
) -> DataFrame:
    """Return the versions that a span adds; the branch is at its base, with converted values."""
    changes = extension.changes
    if build.source.span.has_partial_updates:
        # Read as a branch, it has its present columns.
        history = read_current(spark, pipeline.lake.spark_table(attempt.table, BRANCH))
        before = current_before(
            history, extension.touched_keys, build.source.schema, is_small=build.has_few_changes
        )
        changes = changes.unionByName(before)
    return _make_versions(changes, build)


def _make_versions(changes: DataFrame, build: HistoryBuild) -> DataFrame:
    source = build.source
    versions = make_versions(
        changes,
        source.schema,
        has_partial_updates=source.span.has_partial_updates,
        recreated_micros=source.recreated_micros,
    )
    return versions.coalesce(1) if build.has_few_changes else versions


def _append(
    pipeline: Pipeline,
    spark: SparkSession,
    versions: DataFrame,
    attempt: Attempt,
    completion: dict[str, str],
) -> None:
    target = pipeline.lake.spark_table(attempt.table, BRANCH)
    fields = read_current(spark, pipeline.lake.spark_table(attempt.table)).schema.fields
    columns = [(field.name, field.dataType.simpleString()) for field in fields]
    append_versions(versions, target, columns, attempt.properties() | completion)


def _as_outcome(pipeline: Pipeline, attempt: Attempt, version: Snapshot) -> MergeOutcome:
    closures = count_matched(version)
    parent = load_table(pipeline, attempt.table).metadata.snapshot_by_id(version.parent_snapshot_id or -1)
    additions = parent if closures and parent is not None else version
    return MergeOutcome.of(attempt, version.snapshot_id, number_of(additions, "added-records") or 0, closures)
