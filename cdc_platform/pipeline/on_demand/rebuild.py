"""Rebuilding one table or history from the log: from its beginning, or from an older cut."""

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from cdc_platform.errors import CommitConflict, CutNotFound
from cdc_platform.lake.state.cuts import Cut, find_cut, newest_cut
from cdc_platform.pipeline.histories.history_build import extend_histories, run_history_builds
from cdc_platform.pipeline.histories.history_plan import plan_extension, plan_whole
from cdc_platform.pipeline.merging.build import Build, MergeOutcome
from cdc_platform.pipeline.merging.merge import (
    first_version,
    merge_tables,
    plan_build,
    run_builds,
)
from cdc_platform.pipeline.merging.soft_delete import drop_markers, misses_deleted
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.schema.table_ddl import ensure_history, ensure_table
from cdc_platform.pipeline.versions.change_source import whole_span
from cdc_platform.pipeline.versions.handover import find_copy
from cdc_platform.pipeline.versions.log_span import LogSpan, pending_span


@pipeline_step("rebuild")
def rebuild_table(
    pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None = None
) -> MergeOutcome:
    """Rebuild a table, bring the other tables up to the same cycle, and publish all of them.

    Args:
        pipeline: the pipeline.
        spark: Spark session.
        table: source table, or name of a history, to rebuild.
        at_cut: number of an older cut to start from; None starts from the initial copy, or from an empty
            table if there was no copy, and needs the whole log.

    Raises:
        CutNotFound: the cut does not exist, lacks the table, or its snapshot has expired.
        LakeError: there is no cut to start from, and the initial copy is incomplete or gone.
        CommitConflict: another run has published meanwhile; the table is as that run left it.
    """
    cut = newest_cut(pipeline.lake)
    source = pipeline.table(pipeline.lake_tables.get(table, table))
    is_history = source.name != table
    stored_table = pipeline.lake.table(source.name)
    if at_cut is None and stored_table is not None:
        # Rejected before anything changes: the columns of a table belong to its copy until that is complete.
        find_copy(pipeline, stored_table, source.name)
    if is_history:
        outcome = _rebuild_history(pipeline, spark, table, at_cut, cut)
    else:
        outcome = run_builds(pipeline, spark, [_plan(pipeline, spark, table, at_cut)], cut)[0]
    merge_tables(pipeline, spark, [other for other in pipeline.tables if other.name != table])
    other_histories = [other for other in pipeline.histories if not is_history or other.name != source.name]
    extend_histories(pipeline, spark, other_histories)
    published = publish_cut(pipeline)
    if published is None or published.tables.get(table) != outcome.snapshot_id:
        raise CommitConflict(
            f"Another run has published since the rebuild of `{table}` began; start it again."
        )
    if not is_history:
        drop_markers(pipeline, spark, pipeline.stored_schema(table))
    return outcome


def _plan(pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None) -> Build:
    schema = pipeline.stored_schema(table)
    stored_table = ensure_table(pipeline, spark, schema)
    if at_cut is None:
        base = first_version(pipeline, spark, stored_table, table)
        span = whole_span(pipeline, table, find_copy(pipeline, stored_table, table))
    else:
        base, cycle = _version_at(pipeline, stored_table, table, at_cut)
        span = _span_upon(pipeline, table, table, cycle, at_cut)
        if misses_deleted(stored_table, base, schema):
            raise CutNotFound(
                f"Table `{table}` has no deleted rows at cut {at_cut}, which is older than its setting "
                "`soft_delete`; choose a newer cut, or none to start from the log's beginning."
            )
    return plan_build(pipeline, spark, schema, base, span)


def _rebuild_history(
    pipeline: Pipeline, spark: SparkSession, history: str, at_cut: int | None, cut: Cut | None
) -> MergeOutcome:
    schema = pipeline.table(pipeline.lake_tables[history])
    stored_table = ensure_history(pipeline, spark, schema)
    ensure_table(pipeline, spark, pipeline.stored_schema(schema.name))
    if at_cut is None:
        build = plan_whole(pipeline, spark, schema)
    else:
        base, cycle = _version_at(pipeline, stored_table, history, at_cut)
        span = _span_upon(pipeline, schema.name, history, cycle, at_cut)
        build = plan_extension(pipeline, spark, schema, base, span)
    return run_history_builds(pipeline, spark, [build], cut)[0]


def _span_upon(pipeline: Pipeline, table: str, name: str, cycle: int, at_cut: int) -> LogSpan:
    """Return the span of the log after a cut; raise if it holds older replayed changes."""
    span = pending_span(pipeline, table, cycle)
    if span.is_late:
        raise CutNotFound(
            f"Since cut {at_cut}, older transactions of `{name}` have been replayed; choose a newer cut, or "
            "none to start from the log's beginning."
        )
    return span


def _version_at(pipeline: Pipeline, stored_table: Table, table: str, at_cut: int) -> tuple[Snapshot, int]:
    cut = find_cut(pipeline.lake, at_cut)
    base = stored_table.metadata.snapshot_by_id(cut.tables.get(table, -1))
    if base is None:
        raise CutNotFound(f"Table `{table}` has no snapshot of cut {at_cut} any more; choose a newer cut.")
    return base, cut.cycle
