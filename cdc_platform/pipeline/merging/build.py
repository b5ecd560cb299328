"""Build of one table's next version on its branch: computes its net changes and merges them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.commits.commits import BRANCH
from cdc_platform.lake.commits.declared_keys import allow_null_keys
from cdc_platform.lake.local_writer.local_table import LocalTable
from cdc_platform.model.schema.column_versions import Conversion
from cdc_platform.model.schema.table_options import keeps_deleted, source_schema
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.local_merge import (
    LocalMerge,
    commit_merge,
    count_actions,
    find_local,
    plan_merge,
)
from cdc_platform.pipeline.merging.local_rows import LocalNetChanges
from cdc_platform.pipeline.merging.soft_delete import net_changes_with_deleted
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.table_ddl import convert_stored, mark_not_deleted
from cdc_platform.pipeline.versions.branch import (
    Attempt,
    count_matched,
    marked_commits,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.versions.change_source import (
    SINGLE_TASK_CHANGES,
    ChangeSource,
    log_columns_of,
    read_changes,
    select_changes,
)
from cdc_platform.pipeline.versions.log_span import LogSpan
from cdc_platform.pipeline.versions.recent_log import RecentLog, fits_in_memory, read_recent_span
from cdc_platform.spark.frames.table_frames import cache_frame, cache_view
from cdc_platform.spark.tables.merge import append_inserted, merge_everything, merge_existing
from cdc_platform.spark.tables.net_changes import (
    NetChanges,
    NetChangeStats,
    compute_net_changes,
    compute_net_rows,
    measure_net_changes,
)


@dataclass(frozen=True)
class MergeOutcome:
    """Result of one step for a table's branch; ``snapshot_id`` is None if the log had no changes for it.

    ``fell_back`` means that the full merge ran because the source's inserts contradicted the table's keys.
    """

    table: str
    cycle: int
    snapshot_id: int | None = None
    appended: int = 0
    updated: int = 0
    deleted: int = 0
    fell_back: bool = False

    @classmethod
    def of(cls, attempt: Attempt, snapshot_id: int, appended: int, updated: int, deleted: int = 0) -> Self:
        """Return the outcome of an attempt that has built a snapshot."""
        return cls(attempt.table, attempt.cycle, snapshot_id, appended, updated, deleted, attempt.fell_back)


@dataclass(frozen=True)
class Build:
    """A table's next version: its base, and the span of the log to merge.

    ``conversions`` are columns whose stored values are converted to another type first. Changes committed
    before ``begun_micros`` belong to a dropped table of the same name. Without ``trusts_inserts``, the log
    does not show which keys the table has, because the change stream leaves out changes. With
    ``marks_living``, the base is older than the columns that mark deleted rows. With ``takes_former``, rows
    with late changes are computed again from all of their changes. ``recent_log`` may have the span's rows.
    """

    schema: TableSchema
    base: Snapshot
    span: LogSpan
    conversions: tuple[Conversion, ...] = ()
    begun_micros: int | None = None
    trusts_inserts: bool = True
    marks_living: bool = False
    takes_former: bool = False
    recent_log: RecentLog | None = field(default=None, repr=False)

    @property
    def has_partial_updates(self) -> bool:
        """Whether a change may name only some columns, like a soft delete."""
        return self.span.has_partial_updates or keeps_deleted(self.schema)

    @property
    def has_few_changes(self) -> bool:
        """Whether one task can read the changes."""
        return self.span.changes <= SINGLE_TASK_CHANGES

    def attempt(self, cut: int, token: str) -> Attempt:
        """Return the attempt to build the version; `cut` is the newest one before the plan."""
        return Attempt(self.schema.name, self.base, self.span.until_inclusive, cut, token=token)


def split_build(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build
) -> MergeOutcome | None:
    """Append inserted keys and merge existing ones separately; None if the table lacks an existing key.

    If the inserts of the source are never trusted, this is the full merge, which is then no fallback.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    if not build.trusts_inserts:
        return full_build(pipeline, spark, attempt, build)
    with _net_changes(pipeline, spark, build, trusts_inserts=True) as net_changes:
        if isinstance(net_changes, LocalMerge):
            return _build_locally(pipeline, attempt, net_changes) if not net_changes.lacks_keys else None
        return _build_separately(pipeline, spark, attempt, build, net_changes)


def full_build(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome:
    """Merge the net changes without assumptions about the keys of the table.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    with _net_changes(pipeline, spark, build, trusts_inserts=False) as net_changes:
        if isinstance(net_changes, LocalMerge):
            return _build_locally(pipeline, attempt, net_changes)
        return _build_together(pipeline, spark, attempt, build, net_changes)


@contextmanager
def _net_changes(
    pipeline: Pipeline, spark: SparkSession, build: Build, *, trusts_inserts: bool
) -> "Iterator[NetChanges | LocalMerge]":
    """Compute the net changes of a span of the log; this process merges them if they are few, else Spark."""
    local, frame = _find_local(pipeline, build), _compute_net_changes(pipeline, spark, build)
    # Net changes that contain whole rows may be larger than the changes.
    if local is not None and not build.takes_former and fits_in_memory(pipeline, build.span):
        merge = _plan_locally(local, build, frame, trusts_inserts=trusts_inserts)
        if merge is not None:
            yield merge
            return
        local = None
    with ExitStack() as cache:
        net_changes = cache_frame(cache, frame)
        stats = measure_net_changes(
            net_changes,
            build.schema,
            has_size=local is not None,
            has_partial_updates=build.has_partial_updates,
        )
        if local is not None and stats.size_bytes <= pipeline.settings.local_merge_bytes:
            merge = _plan_locally(local, build, net_changes, trusts_inserts=trusts_inserts)
            if merge is not None:
                yield merge
                return
        view = cache_view(cache, net_changes)
        yield NetChanges(view, net_changes, stats, build.schema, build.has_partial_updates)


def _find_local(pipeline: Pipeline, build: Build) -> LocalTable | None:
    """Return the table for a local merge, None if the base must be changed first."""
    is_base = not build.conversions and not build.marks_living
    return find_local(pipeline, build.schema, build.base) if is_base else None


def _plan_locally(
    local: LocalTable, build: Build, net_changes: DataFrame, *, trusts_inserts: bool
) -> LocalMerge | None:
    return plan_merge(
        local, LocalNetChanges(net_changes.toArrow(), build.schema, build.has_partial_updates, trusts_inserts)
    )


def _build_locally(pipeline: Pipeline, attempt: Attempt, merge: LocalMerge) -> MergeOutcome:
    table = reset_branch(pipeline, attempt)
    if merge.net_changes.has_null_keys:
        allow_null_keys(table)
    snapshot_id = commit_merge(table, merge, attempt.properties() | attempt.completion(commits=1))
    return _as_outcome(attempt, snapshot_id, count_actions(merge.net_changes))


def _build_separately(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, net_changes: NetChanges
) -> MergeOutcome | None:
    stats, target = net_changes.stats, pipeline.lake.spark_table(attempt.table, BRANCH)
    appends, merges = stats.appended > 0 or stats.existing == 0, stats.existing > 0
    commits = _begin(pipeline, spark, attempt, build, stats) + int(appends) + int(merges)
    if appends:
        completion = {} if merges else attempt.completion(commits)
        append_inserted(net_changes.frame, target, net_changes.schema, attempt.properties() | completion)
    if merges:
        with marked_commits(spark, attempt.completion(commits, closed_rows=stats.existing)):
            merge_existing(spark, net_changes, target)
    head = verify_attempt(pipeline, attempt, commits)
    lacks_keys = merges and count_matched(head) != stats.existing
    return None if lacks_keys else _as_outcome(attempt, head.snapshot_id, stats)


def _build_together(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, net_changes: NetChanges
) -> MergeOutcome:
    target = pipeline.lake.spark_table(attempt.table, BRANCH)
    commits = _begin(pipeline, spark, attempt, build, net_changes.stats) + 1
    with marked_commits(spark, attempt.completion(commits)):
        merge_everything(spark, net_changes, target)
    snapshot_id = verify_attempt(pipeline, attempt, commits).snapshot_id
    return _as_outcome(attempt, snapshot_id, net_changes.stats)


def _begin(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, stats: NetChangeStats
) -> int:
    """Reset the branch to the base, convert stored values, and return the number of commits."""
    table = reset_branch(pipeline, attempt)
    if stats.has_null_keys:
        allow_null_keys(table)
    commits = mark_not_deleted(pipeline, spark, attempt.table) if build.marks_living else 0
    return commits + convert_stored(pipeline, spark, attempt.table, build.conversions)


def _compute_net_changes(pipeline: Pipeline, spark: SparkSession, build: Build) -> DataFrame:
    log = read_recent_span(pipeline, spark, build.schema.name, build.span, build.recent_log)
    if build.has_few_changes:
        log = log.coalesce(1)
    is_soft = keeps_deleted(build.schema)
    span = replace(build.span, has_partial_updates=build.has_partial_updates)
    source = ChangeSource(
        source_schema(build.schema),
        span,
        since_micros=build.begun_micros,
        keeps_truncated=is_soft,
        takes_former=build.takes_former,
    )
    if not span.has_partial_updates:
        rows = select_changes(pipeline, spark, source, log)
        return compute_net_rows(rows, build.schema, log_columns_of(pipeline, source))
    changes = read_changes(pipeline, spark, source, log, has_origin=is_soft)
    if not is_soft:
        return compute_net_changes(changes, build.schema)
    base = None if build.marks_living else build.base
    return net_changes_with_deleted(
        pipeline, spark, changes, build.schema, base, is_small=build.has_few_changes
    )


def _as_outcome(attempt: Attempt, snapshot_id: int, stats: NetChangeStats) -> MergeOutcome:
    return MergeOutcome.of(attempt, snapshot_id, stats.appended, stats.updated, stats.deleted)
