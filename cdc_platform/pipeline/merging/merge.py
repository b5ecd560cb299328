"""The third step of a cycle: each table catches up with the log, on its branch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.schema.table_options import keeps_deleted, stored_schema
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.build import Build, MergeOutcome, full_build, split_build
from cdc_platform.pipeline.merging.next_versions import Base, build_versions, catch_up, find_outcome
from cdc_platform.pipeline.merging.soft_delete import lacks_deleted, misses_deleted, report_rebuild
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.schema.schema_evolution import history_through
from cdc_platform.pipeline.schema.table_ddl import ensure_table
from cdc_platform.pipeline.versions.branch import empty_version, load_table, published_head, require_base
from cdc_platform.pipeline.versions.change_source import read_span, takes_former, trusts_inserts, whole_span
from cdc_platform.pipeline.versions.handover import Handover, find_copy
from cdc_platform.pipeline.versions.log_span import LogSpan, applied_cycle, pending_span, span_after
from cdc_platform.pipeline.versions.recent_log import read_recent
from cdc_platform.spark.tables.truncates import has_truncate


@pipeline_step("merge")
def merge_tables(
    pipeline: Pipeline, spark: SparkSession, schemas: Sequence[TableSchema]
) -> tuple[MergeOutcome, ...]:
    """Bring tables up to date with the log on the branch `cycle`, which readers do not see yet.

    Raises:
        CommitConflict: another run worked on the same branches; nothing was published.
        ValueUnfit: a value of the log does not fit the present type of its column.
    """
    return catch_up(
        pipeline,
        {schema.name: schema for schema in schemas},
        partial(_plan, pipeline, spark),
        partial(run_builds, pipeline, spark),
    )


def _plan(
    pipeline: Pipeline,
    spark: SparkSession,
    source_table: TableSchema,
    cut: Cut | None,
    handover: Handover | None,
) -> Build | MergeOutcome:
    """Return the build of a table, or the outcome if there is nothing to do or it is already done."""
    table, schema = source_table.name, pipeline.stored_schema(source_table.name)
    stored_table = ensure_table(pipeline, spark, schema)
    published_version = published_head(stored_table, table, cut)
    base = require_base(published_version if handover is None else handover.base or head(stored_table), table)
    is_rebuilt = lacks_deleted(stored_table, base, schema)
    span = _missing_span(pipeline, stored_table, table, cut, handover)
    # Late changes cannot be merged on top of newer changes of the table.
    is_from_start = is_rebuilt or (span.is_late and handover is None)
    if is_from_start:
        span = whole_span(pipeline, table, find_copy(pipeline, stored_table, table))
    # The first version of a copied table is built even if the log has no changes after the copy.
    is_due = handover is not None
    outcome = find_outcome(pipeline, Base(table, stored_table, base, cut), span, is_due=is_due)
    if outcome is not None:
        return outcome
    if is_rebuilt:
        report_rebuild(schema)
    if is_from_start:
        base = first_version(pipeline, spark, stored_table, table)
    return plan_build(pipeline, spark, schema, base, span)


def _missing_span(
    pipeline: Pipeline, stored_table: Table, table: str, cut: Cut | None, handover: Handover | None
) -> LogSpan:
    if handover is None or handover.position_micros is None:
        return pending_span(pipeline, table, applied_cycle(pipeline, stored_table, table, cut))
    return span_after(pipeline, table, handover.position_micros)


def first_version(pipeline: Pipeline, spark: SparkSession, stored_table: Table, table: str) -> Snapshot:
    """Return the base of a rebuilt table: its initial copy, else a version without rows."""
    copy = find_copy(pipeline, stored_table, table)
    return (copy.head if copy is not None else None) or empty_version(pipeline, spark, table)


def plan_build(
    pipeline: Pipeline, spark: SparkSession, schema: TableSchema, base: Snapshot, span: LogSpan
) -> Build:
    """Return the build that merges a span of the log into a table, including changes of its columns.

    Raises:
        CommitConflict: another run has extended the log or changed the columns meanwhile.
    """
    history = history_through(pipeline, span.until_inclusive, schema.name)
    columns = history.tables.get(schema.name)
    start = columns.beginning_after(span.after_exclusive) if columns is not None else None
    if start is not None and span.after_micros is not None and (start.micros or 0) <= span.after_micros:
        # The base is a copy of the recreated table.
        start = None
    is_soft = keeps_deleted(schema)
    is_truncated = span.has_truncates and has_truncate(read_span(pipeline, spark, schema.name, span))
    if start is not None or is_truncated:
        base = empty_version(pipeline, spark, schema.name)
    if is_truncated and is_soft:
        # Only the whole log shows which rows it removed.
        span = pending_span(pipeline, schema.name, 0)
    marks_living = is_soft and misses_deleted(load_table(pipeline, schema.name), base, schema)
    is_trusted = trusts_inserts(pipeline, schema.name, history)
    is_recomputed = takes_former(pipeline, schema)
    span = replace(span, has_partial_updates=span.has_partial_updates or is_recomputed)
    build = Build(
        schema, base, span, trusts_inserts=is_trusted, marks_living=marks_living, takes_former=is_recomputed
    )
    if columns is None:
        return build
    evolved_schema = stored_schema(columns.schema_after(span.after_exclusive), pipeline.options(schema.name))
    return replace(
        build,
        schema=evolved_schema,
        span=replace(span, has_partial_updates=span.has_partial_updates or evolved_schema.is_evolving),
        conversions=columns.conversions_after(span.after_exclusive, span.after_micros),
        begun_micros=start.micros if start is not None else None,
    )


def run_builds(
    pipeline: Pipeline, spark: SparkSession, builds: Sequence[Build], cut: Cut | None
) -> tuple[MergeOutcome, ...]:
    """Build the next versions of tables on their branches; `cut` is the newest one before their plans."""
    with pipeline.progress.step("merge", "tables", len(builds)) as step:
        step.note = f"{sum(build.span.changes for build in builds):,} changes"
        recent_log = read_recent(pipeline, [build.span for build in builds])
        builds = [replace(build, recent_log=recent_log) for build in builds]
        return build_versions(pipeline, spark, step, builds, cut, (split_build, full_build))
