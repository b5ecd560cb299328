"""Rebuilding a table from the log, when something outside the platform has damaged it."""

from pyspark.sql import SparkSession

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.copies import CopyProgress
from cdc_platform.lake.cuts import find_cut
from cdc_platform.pipeline.adapt import empty_version, ensure_table
from cdc_platform.pipeline.handover import find_copy
from cdc_platform.pipeline.merge import MergeOutcome, merge_tables, plan_build, run_builds
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.publish import publish_cut
from cdc_platform.pipeline.span import LogSpan, pending_span, span_after


def rebuild_table(
    pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None = None
) -> MergeOutcome:
    """Build a table anew and publish it with a cut of its own, in which the others are at the log, too.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        table: source table to rebuild.
        at_cut: number of an older cut to start from; None starts from the initial copy, or from an
            empty table where there was none, and needs the whole log.

    Raises:
        CutNotFound: there is no such cut, it lacks the table, or its snapshot has expired.
    """
    schema = pipeline.table(table)
    found = ensure_table(pipeline, spark, schema)
    if at_cut is None:
        copy = find_copy(pipeline, found, table)
        base = (copy.head if copy is not None else None) or empty_version(pipeline, spark, table)
        span = _whole_span(pipeline, table, copy)
    else:
        cut = find_cut(pipeline.lake, at_cut)
        base = found.metadata.snapshot_by_id(cut.tables.get(table, -1))
        span = pending_span(pipeline, table, cut.tick)
    if base is None:
        raise CutNotFound(f"Table `{table}` has no snapshot of cut {at_cut} any more; choose a newer cut.")
    build = plan_build(pipeline, spark, schema, base, span)
    outcome = run_builds(pipeline, spark, [build])[0]
    merge_tables(pipeline, spark, [other for other in pipeline.tables if other.name != table])
    publish_cut(pipeline, spark)
    return outcome


def _whole_span(pipeline: Pipeline, table: str, copy: CopyProgress | None) -> LogSpan:
    """Return all of the log that lies upon the initial copy, or upon nothing where there was none."""
    if copy is None:
        return pending_span(pipeline, table, 0)
    return span_after(pipeline, table, copy.plan.position_micros)
