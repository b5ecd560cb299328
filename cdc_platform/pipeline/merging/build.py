"""Building one table's next version on its branch: its changes are folded, and brought in."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.commits.commits import BRANCH
from cdc_platform.lake.commits.declared_keys import allow_null_keys
from cdc_platform.lake.local_writer.local_table import LocalTable
from cdc_platform.model.schema.column_versions import Conversion
from cdc_platform.model.schema.table_options import keeps_deleted, source_schema
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.merging.local_merge import (
    LocalMerge,
    commit_merge,
    count_actions,
    find_local,
    is_at_hand,
    plan_merge,
)
from cdc_platform.pipeline.merging.local_rows import LocalNetChanges
from cdc_platform.pipeline.merging.soft_delete import fold_with_deleted
from cdc_platform.pipeline.schema.table_ddl import convert_stored, mark_living
from cdc_platform.pipeline.versions.branch import (
    Attempt,
    count_matched,
    load_table,
    marked_commits,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.versions.change_source import (
    SINGLE_TASK_CHANGES,
    ChangeSource,
    read_changes,
    read_span,
    select_changes,
    words_of,
)
from cdc_platform.pipeline.versions.log_span import LogSpan
from cdc_platform.spark.frames.table_frames import hold, hold_view
from cdc_platform.spark.tables.merge import append_inserted, merge_everything, merge_existing
from cdc_platform.spark.tables.net_changes import PatchStats, fold_changes, fold_rows, measure_patch


@dataclass(frozen=True)
class MergeOutcome:
    """What one step did to a table's branch; ``snapshot_id`` is None when the log had nothing for it.

    ``fell_back`` tells that the source broke its word about which keys exist, so that the full
    merge ran.
    """

    table: str
    cycle: int
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
    tell which keys the table has, since the change stream leaves changes out. With ``marks_living`` the
    base is older than the columns that mark deleted rows. With ``takes_former`` rows of which something
    comes late are folded again, from all of their changes.
    """

    schema: TableSchema
    base: Snapshot
    span: LogSpan
    conversions: tuple[Conversion, ...] = ()
    begun_micros: int | None = None
    trusts_inserts: bool = True
    marks_living: bool = False
    takes_former: bool = False

    @property
    def has_patches(self) -> bool:
        """Whether a change may name only some columns, as the delete of a row that stays does."""
        return self.span.has_patches or keeps_deleted(self.schema)


def split_build(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build
) -> MergeOutcome | None:
    """Bring in what was born and what existed, apart; None when the table lacks a key that existed.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    if not build.trusts_inserts:
        return None
    with _folded(pipeline, spark, build, trusts_inserts=True) as patch:
        if isinstance(patch, LocalMerge):
            return _build_here(pipeline, spark, attempt, patch) if not patch.lacks_keys else None
        return _build_apart(pipeline, spark, attempt, build, patch)


def full_build(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome:
    """Merge whatever the table has of the patch's keys.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    with _folded(pipeline, spark, build, trusts_inserts=False) as patch:
        if isinstance(patch, LocalMerge):
            return _build_here(pipeline, spark, attempt, patch)
        return _build_together(pipeline, spark, attempt, build, patch)


@contextmanager
def _folded(
    pipeline: Pipeline, spark: SparkSession, build: Build, *, trusts_inserts: bool
) -> "Iterator[Patch | LocalMerge]":
    """Fold a span of the log into a patch, for this process to bring in if it is small, else for Spark."""
    local, frame = _find_local(pipeline, build), _fold(pipeline, spark, build)
    # With what changes belong to that came before, a patch may be larger than they are.
    if local is not None and not build.takes_former and is_at_hand(pipeline, build.span):
        merge = _plan_here(local, build, frame, trusts_inserts=trusts_inserts)
        if merge is not None:
            yield merge
            return
        local = None
    with ExitStack() as held:
        patch = hold(held, frame)
        stats = measure_patch(patch, build.schema, has_size=local is not None)
        if local is not None and stats.size_bytes <= pipeline.settings.merge_here_bytes:
            merge = _plan_here(local, build, patch, trusts_inserts=trusts_inserts)
            if merge is not None:
                yield merge
                return
        view = hold_view(held, patch)
        yield Patch(view, patch, stats, build.schema, build.has_patches)


def _find_local(pipeline: Pipeline, build: Build) -> LocalTable | None:
    """Return what this process needs to merge by itself, None where the base is to be changed before."""
    is_base = not build.conversions and not build.marks_living
    return find_local(pipeline, build.schema, build.base) if is_base else None


def _plan_here(
    local: LocalTable, build: Build, patch: DataFrame, *, trusts_inserts: bool
) -> LocalMerge | None:
    return plan_merge(
        local, LocalNetChanges(patch.toArrow(), build.schema, build.has_patches, trusts_inserts)
    )


def _build_here(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, merge: LocalMerge) -> MergeOutcome:
    reset_branch(pipeline, spark, attempt)
    if merge.patch.has_null_keys:
        allow_null_keys(load_table(pipeline, attempt.table))
    table = load_table(pipeline, attempt.table)
    commit_merge(table, merge, attempt.properties() | attempt.completion(commits=1))
    return _as_outcome(attempt, verify_attempt(pipeline, attempt, commits=1), count_actions(merge.patch))


def _build_apart(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, patch: Patch
) -> MergeOutcome | None:
    stats, target = patch.stats, pipeline.lake.spark_table(attempt.table, BRANCH)
    appends, merges = stats.appended > 0 or stats.existing == 0, stats.existing > 0
    commits = _begin(pipeline, spark, attempt, build, stats) + int(appends) + int(merges)
    if appends:
        completion = {} if merges else attempt.completion(commits)
        append_inserted(patch.frame, target, patch.schema, attempt.properties() | completion)
    if merges:
        with marked_commits(spark, attempt.completion(commits, matched=stats.existing)):
            merge_existing(spark, patch.view, target, patch.schema, stats, has_patches=patch.has_patches)
    built = verify_attempt(pipeline, attempt, commits)
    lacks_keys = merges and count_matched(built) != stats.existing
    return None if lacks_keys else _as_outcome(attempt, built, stats)


def _build_together(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, patch: Patch
) -> MergeOutcome:
    target = pipeline.lake.spark_table(attempt.table, BRANCH)
    commits = _begin(pipeline, spark, attempt, build, patch.stats) + 1
    with marked_commits(spark, attempt.completion(commits)):
        merge_everything(spark, patch.view, target, patch.schema, patch.stats, has_patches=patch.has_patches)
    return _as_outcome(attempt, verify_attempt(pipeline, attempt, commits), patch.stats)


def _begin(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build, stats: PatchStats) -> int:
    """Bring the branch to the base, convert what is to be converted, and return the number of commits."""
    reset_branch(pipeline, spark, attempt)
    if stats.has_null_keys:
        allow_null_keys(load_table(pipeline, attempt.table))
    marked = mark_living(pipeline, spark, attempt.table) if build.marks_living else 0
    return marked + convert_stored(pipeline, spark, attempt.table, build.conversions)


def _fold(pipeline: Pipeline, spark: SparkSession, build: Build) -> DataFrame:
    log = read_span(pipeline, spark, build.schema.name, build.span)
    if build.span.changes <= SINGLE_TASK_CHANGES:
        log = log.coalesce(1)
    is_soft = keeps_deleted(build.schema)
    span = replace(build.span, has_patches=build.has_patches)
    source = ChangeSource(
        source_schema(build.schema),
        span,
        since_micros=build.begun_micros,
        keeps_truncated=is_soft,
        takes_former=build.takes_former,
    )
    if not span.has_patches:
        rows = select_changes(pipeline, spark, source, log)
        return fold_rows(rows, build.schema, words_of(pipeline, source))
    changes = read_changes(pipeline, spark, source, log, has_origin=is_soft)
    if not is_soft:
        return fold_changes(changes, build.schema, has_patches=True)
    base = None if build.marks_living else build.base
    is_small = build.span.changes <= SINGLE_TASK_CHANGES
    return fold_with_deleted(pipeline, spark, changes, build.schema, base, is_small=is_small)


def _as_outcome(attempt: Attempt, built: Snapshot, stats: PatchStats) -> MergeOutcome:
    return MergeOutcome(
        table=attempt.table,
        cycle=attempt.cycle,
        snapshot_id=built.snapshot_id,
        appended=stats.appended,
        updated=stats.updated,
        deleted=stats.deleted,
        fell_back=attempt.fell_back,
    )
