"""The third step of a tick: each table is brought up to the log, on its branch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.lake.commits import BRANCH, fact, has_at_most, head, read_mark
from cdc_platform.lake.cuts import Cut, newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.model.column_versions import Conversion
from cdc_platform.model.table_options import keeps_deleted, source_schema, stored_schema
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.pipeline.adapt import convert_stored, ensure_table, mark_living
from cdc_platform.pipeline.attempts import run_attempts
from cdc_platform.pipeline.branch import (
    FELL_BACK,
    Attempt,
    count_matched,
    empty_version,
    finished_head,
    load_table,
    marked_commits,
    published_head,
    require_base,
    reset_branch,
    verify_attempt,
)
from cdc_platform.pipeline.change_source import (
    SINGLE_TASK_CHANGES,
    ChangeSource,
    read_changes,
    read_span,
    select_changes,
    takes_former,
    trusts_inserts,
    whole_span,
    words_of,
)
from cdc_platform.pipeline.evolve import known_through
from cdc_platform.pipeline.handover import Handover, find_copy, find_handover
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.soft_delete import (
    fold_with_deleted,
    lacks_deleted,
    misses_deleted,
    tell_of_rebuild,
)
from cdc_platform.pipeline.span import LogSpan, applied_tick, pending_span, span_after
from cdc_platform.spark.fold import PatchStats, fold_changes, fold_rows, measure_patch
from cdc_platform.spark.merge import append_born, merge_everything, merge_existing
from cdc_platform.spark.truncates import has_truncate

SMALL_TABLE_ROWS: Final = 500_000
"""Up to so many rows a table is scanned without generated code where the changes are few, too."""
ONE_TASK_TABLE_ROWS: Final = 50_000
"""Up to so many rows one task merges it, where the changes are few, too."""


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
    tell which keys the table has, since the change stream leaves changes out. With ``marks_living`` the
    base is older than the columns that mark deleted rows. With ``takes_former`` rows of which something
    comes late are folded anew, from all of their changes.
    """

    schema: TableSchema
    base: Snapshot
    span: LogSpan
    conversions: tuple[Conversion, ...] = ()
    begun_micros: int | None = None
    trusts_inserts: bool = True
    marks_living: bool = False
    takes_former: bool = False


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
    planned = [_plan(pipeline, spark, pipeline.stored(schema.name)) for schema in schemas]
    builds = [build for build in planned if isinstance(build, Build)]
    built = {outcome.table: outcome for outcome in run_builds(pipeline, spark, builds)}
    return tuple(built[plan.schema.name] if isinstance(plan, Build) else plan for plan in planned)


def _plan(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Build | MergeOutcome:
    """Return what is to be built, or the outcome when there is nothing to do or it is done already."""
    table = schema.name
    cut = newest_cut(pipeline.lake)
    handover = find_handover(pipeline, pipeline.lake.table(table), table, cut)
    if handover is not None and not handover.is_ready:
        # Until then the table has the columns of its copy, and no others.
        return MergeOutcome(table, read_mark(pipeline.lake.system_table(LOG)).tick)
    found = ensure_table(pipeline, spark, schema)
    named = cut.tables.get(table) if cut is not None else None
    base = handover.base or head(found) if handover is not None else published_head(found, named)
    is_anew = lacks_deleted(found, base, schema)
    if is_anew:
        span = whole_span(pipeline, table, find_copy(pipeline, found, table))
    else:
        span = _pending(pipeline, found, table, cut, handover)
    # What belongs before the changes that the table has already cannot be merged upon them.
    is_late = span.is_late and handover is None and not is_anew
    if is_late:
        span = whole_span(pipeline, table, find_copy(pipeline, found, table))
    # Readers of a cut see the columns that its snapshots were made with.
    has_its_columns = base is not None and base.schema_id == found.metadata.current_schema_id
    # The first version of a copied table is built even where the log has nothing upon the copy.
    is_level = span.changes == 0 and has_its_columns and handover is None
    if span.until_inclusive == 0 or is_level:
        return MergeOutcome(table, span.until_inclusive)
    done = finished_head(found)
    if (
        done is not None
        and read_mark(found, BRANCH).tick == span.until_inclusive
        and not misses_deleted(found, done, schema)
    ):
        fell_back = fact(done, FELL_BACK) == "true"
        return MergeOutcome(table, span.until_inclusive, done.snapshot_id, fell_back=fell_back)
    if is_anew:
        tell_of_rebuild(schema)
    if is_anew or is_late:
        base = first_version(pipeline, spark, found, table)
    return plan_build(pipeline, spark, schema, require_base(base, table), span)


def _pending(
    pipeline: Pipeline, found: Table, table: str, cut: Cut | None, handover: Handover | None
) -> LogSpan:
    if handover is None or handover.position_micros is None:
        return pending_span(pipeline, table, applied_tick(found, table, cut))
    return span_after(pipeline, table, handover.position_micros)


def first_version(pipeline: Pipeline, spark: SparkSession, found: Table, table: str) -> Snapshot:
    """Return what a table is built upon that is built anew: its initial copy, else no row at all."""
    copy = find_copy(pipeline, found, table)
    return (copy.head if copy is not None else None) or empty_version(pipeline, spark, table)


def plan_build(
    pipeline: Pipeline, spark: SparkSession, schema: TableSchema, base: Snapshot, span: LogSpan
) -> Build:
    """Return how a span of the log brings a table further, with what has changed in its columns meanwhile.

    Raises:
        CommitConflict: another run has extended the log meanwhile.
    """
    history = known_through(pipeline, span.until_inclusive)
    known = history.tables.get(schema.name)
    begun = known.begun if known is not None else None
    begun = begun if begun is not None and begun.tick > span.after_exclusive else None
    if begun is not None and span.after_micros is not None and (begun.micros or 0) <= span.after_micros:
        # The copy that it is built upon is of the table that was made anew.
        begun = None
    is_soft = keeps_deleted(schema)
    is_truncated = span.has_truncates and has_truncate(read_span(pipeline, spark, schema.name, span))
    if begun is not None or is_truncated:
        base = empty_version(pipeline, spark, schema.name)
    if is_truncated and is_soft:
        # Which rows it took away, only the whole log tells.
        span = pending_span(pipeline, schema.name, 0)
    marks_living = is_soft and misses_deleted(load_table(pipeline, schema.name), base, schema)
    trusted = trusts_inserts(pipeline, schema.name, history)
    is_refolded = takes_former(pipeline, schema)
    span = replace(span, has_patches=span.has_patches or is_refolded)
    build = Build(
        schema, base, span, trusts_inserts=trusted, marks_living=marks_living, takes_former=is_refolded
    )
    if known is None:
        return build
    evolved = stored_schema(known.schema_after(span.after_exclusive), pipeline.options(schema.name))
    return replace(
        build,
        schema=evolved,
        span=replace(span, has_patches=span.has_patches or evolved.is_evolving),
        conversions=known.conversions_after(span.after_exclusive, span.after_micros),
        begun_micros=begun.micros if begun is not None else None,
    )


def run_builds(pipeline: Pipeline, spark: SparkSession, builds: Sequence[Build]) -> tuple[MergeOutcome, ...]:
    """Build the next versions of tables on their branches, each independent of the others."""
    token = uuid4().hex
    return run_attempts(
        spark,
        [
            (Attempt(build.schema.name, build.base, build.span.until_inclusive, token=token), build)
            for build in builds
        ],
        believe=partial(_split_build, pipeline, spark),
        fall_back=partial(_full_build, pipeline, spark),
        is_small=all(_is_small(build, SMALL_TABLE_ROWS) for build in builds),
        in_one_task=all(_is_small(build, ONE_TASK_TABLE_ROWS) for build in builds),
    )


def _is_small(build: Build, most_rows: int) -> bool:
    return build.span.changes <= SINGLE_TASK_CHANGES and has_at_most(build.base, most_rows)


@contextmanager
def _folded(pipeline: Pipeline, spark: SparkSession, build: Build) -> Iterator[Patch]:
    """Fold a span of the log into a patch, and forget it afterwards."""
    log = read_span(pipeline, spark, build.schema.name, build.span)
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
    is_soft = keeps_deleted(build.schema)
    span = replace(build.span, has_patches=build.span.has_patches or is_soft)
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


def _split_build(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build
) -> MergeOutcome | None:
    """Append what was born and merge what existed; None when the table lacks a key that existed."""
    if not build.trusts_inserts:
        return None
    with _folded(pipeline, spark, build) as patch:
        stats, target = patch.stats, pipeline.lake.spark_table(attempt.table, BRANCH)
        appends, merges = stats.appended > 0 or stats.existing == 0, stats.existing > 0
        commits = _begin(pipeline, spark, attempt, build) + int(appends) + int(merges)
        if appends:
            completion = {} if merges else attempt.completion(commits)
            append_born(patch.frame, target, patch.schema, attempt.properties() | completion)
        if merges:
            with marked_commits(spark, attempt.completion(commits, matched=stats.existing)):
                merge_existing(spark, patch.view, target, patch.schema, stats, has_patches=patch.has_patches)
        built = verify_attempt(pipeline, attempt, commits)
    lacks_keys = merges and count_matched(built) != stats.existing
    return None if lacks_keys else _as_outcome(attempt, built, stats)


def _begin(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> int:
    """Bring the branch to the base, convert what is to be converted, and return the number of commits."""
    reset_branch(pipeline, spark, attempt)
    marked = mark_living(pipeline, spark, attempt.table) if build.marks_living else 0
    return marked + convert_stored(pipeline, spark, attempt.table, build.conversions)


def _full_build(pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: Build) -> MergeOutcome:
    """Merge whatever the table has of the patch's keys."""
    with _folded(pipeline, spark, build) as patch:
        target = pipeline.lake.spark_table(attempt.table, BRANCH)
        commits = _begin(pipeline, spark, attempt, build) + 1
        with marked_commits(spark, attempt.completion(commits)):
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
