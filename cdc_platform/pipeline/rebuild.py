"""Rebuilding a table from the log, when something outside the platform has damaged it."""

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.commits import BRANCH, head
from cdc_platform.lake.cuts import find_cut
from cdc_platform.pipeline.branch import Attempt, load_table, reset_branch
from cdc_platform.pipeline.merge import Build, MergeOutcome, ensure_table, merge_tables, run_builds
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
    ensure_table(pipeline, spark, schema)
    found = load_table(pipeline, table)
    if at_cut is None:
        base, after = _empty_version(pipeline, spark, table), 0
    else:
        cut = find_cut(pipeline.lake, at_cut)
        base, after = found.metadata.snapshot_by_id(cut.tables.get(table, -1)), cut.tick
    if base is None:
        raise CutNotFound(f"Table `{table}` has no snapshot of cut {at_cut} any more; choose a newer cut.")
    build = Build(schema, base, pending_span(pipeline, table, after))
    outcome = run_builds(pipeline, spark, [build])[0]
    merge_tables(pipeline, spark, [other for other in pipeline.tables if other.name != table])
    publish_cut(pipeline, spark)
    return outcome


def _empty_version(pipeline: Pipeline, spark: SparkSession, table: str) -> Snapshot | None:
    """Return a snapshot of the table without any row, on the branch only."""
    main = head(load_table(pipeline, table))
    if main is not None:
        reset_branch(pipeline, spark, Attempt(table, main, tick=0))
    target = pipeline.lake.spark_table(table, BRANCH)
    spark.table(target).limit(0).writeTo(target).overwrite(F.lit(True))
    return head(load_table(pipeline, table), BRANCH)
