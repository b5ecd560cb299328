"""Rebuilding a table from the log, when something outside the platform has damaged it."""

from pyspark.sql import SparkSession

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.cuts import find_cut
from cdc_platform.pipeline.adapt import empty_version, ensure_table
from cdc_platform.pipeline.merge import MergeOutcome, merge_tables, plan_build, run_builds
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.publish import publish_cut
from cdc_platform.pipeline.span import pending_span


def rebuild_table(
    pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None = None
) -> MergeOutcome:
    """Build a table anew and publish it with a cut of its own, in which the others are at the log, too.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        table: source table to rebuild.
        at_cut: number of an older cut to start from; None starts from an empty table and needs
            the whole log.

    Raises:
        CutNotFound: there is no such cut, it lacks the table, or its snapshot has expired.
    """
    schema = pipeline.table(table)
    found = ensure_table(pipeline, spark, schema)
    if at_cut is None:
        base, after = empty_version(pipeline, spark, table), 0
    else:
        cut = find_cut(pipeline.lake, at_cut)
        base, after = found.metadata.snapshot_by_id(cut.tables.get(table, -1)), cut.tick
    if base is None:
        raise CutNotFound(f"Table `{table}` has no snapshot of cut {at_cut} any more; choose a newer cut.")
    build = plan_build(pipeline, spark, schema, base, pending_span(pipeline, table, after))
    outcome = run_builds(pipeline, spark, [build])[0]
    merge_tables(pipeline, spark, [other for other in pipeline.tables if other.name != table])
    publish_cut(pipeline, spark)
    return outcome
