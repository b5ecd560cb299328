"""Rebuilding a table from the log, when something outside the platform has damaged it."""

from pyspark.sql import SparkSession

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.cuts import find_cut
from cdc_platform.pipeline.branch import empty_version, load_table
from cdc_platform.pipeline.history import ensure_history, extend_histories, run_history_builds
from cdc_platform.pipeline.merge import Build, MergeOutcome, ensure_table, merge_tables, run_builds
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.publish import publish_cut
from cdc_platform.pipeline.soft_delete import drop_markers, misses_deleted
from cdc_platform.pipeline.span import pending_span


def rebuild_table(
    pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None = None
) -> MergeOutcome:
    """Build a table or a history anew and publish it with a cut of its own, the others at the log, too.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        table: source table, or name of a history, to rebuild.
        at_cut: number of an older cut to start from; None starts from an empty table and needs
            the whole log.

    Raises:
        CutNotFound: there is no such cut, it lacks the table, or its snapshot has expired.
    """
    stored, source = pipeline.stored(table), pipeline.lake_tables[table]
    is_history = source != table
    if is_history:
        ensure_history(pipeline, spark, pipeline.table(source))
        build = _plan(pipeline, spark, table, at_cut)
        outcome = run_history_builds(pipeline, spark, [build])[0]
    else:
        ensure_table(pipeline, spark, stored)
        outcome = run_builds(pipeline, spark, [_plan(pipeline, spark, table, at_cut)])[0]
    merge_tables(pipeline, spark, [other for other in pipeline.tables if other.name != table])
    others = [other for other in pipeline.histories if not is_history or other.name != source]
    extend_histories(pipeline, spark, others)
    publish_cut(pipeline, spark)
    if not is_history:
        drop_markers(pipeline, spark, stored)
    return outcome


def _plan(pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None) -> Build:
    """Return what a rebuild begins with, and the span of the log that it has to take in."""
    found, source = load_table(pipeline, table), pipeline.lake_tables[table]
    if at_cut is None:
        base, after = empty_version(pipeline, spark, table), 0
    else:
        cut = find_cut(pipeline.lake, at_cut)
        base, after = found.metadata.snapshot_by_id(cut.tables.get(table, -1)), cut.tick
    if base is None:
        raise CutNotFound(f"Table `{table}` has no snapshot of cut {at_cut} any more; choose a newer cut.")
    stored = pipeline.stored(table)
    if at_cut is not None and misses_deleted(found, base, stored):
        raise CutNotFound(
            f"Table `{table}` has no deleted rows at cut {at_cut}, from before its setting `soft_delete`; "
            "choose a newer cut, or none to start from the log's beginning."
        )
    schema = pipeline.table(source) if source != table else stored
    return Build(schema, base, pending_span(pipeline, source, after))
