"""Histories of sources with late changes: all versions of the touched keys are rebuilt."""

from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import BRANCH, head
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.histories.history_plan import HistoryBuild
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.schema_evolution import history_through
from cdc_platform.pipeline.schema.table_ddl import convert_stored
from cdc_platform.pipeline.versions.branch import Attempt, load_table, marked_commits, reset_branch
from cdc_platform.pipeline.versions.change_source import find_beginning, read_changes, read_span
from cdc_platform.pipeline.versions.recent_log import read_recent_span
from cdc_platform.spark.frames.table_frames import cache_view
from cdc_platform.spark.tables.row_versions import make_versions
from cdc_platform.spark.tables.typed_columns import ROW, with_row


def find_row_keys(pipeline: Pipeline, spark: SparkSession, build: HistoryBuild) -> DataFrame:
    """Return the distinct keys that a span touches."""
    source = build.source
    keys = [quote_spark(column.name) for column in source.schema.key_columns]
    log = read_recent_span(pipeline, spark, source.schema.name, source.span, build.recent_log)
    return read_changes(pipeline, spark, source, log).select(*keys).distinct()


def forget_versions(
    pipeline: Pipeline, spark: SparkSession, attempt: Attempt, build: HistoryBuild, row_keys: DataFrame
) -> int:
    """Remove all versions of some keys from the branch; return the number of commits."""
    reset_branch(pipeline, attempt)
    commits = convert_stored(pipeline, spark, attempt.table, build.conversions)
    target = pipeline.lake.spark_table(attempt.table, BRANCH)
    before = head(load_table(pipeline, attempt.table), BRANCH)
    with ExitStack() as cache, marked_commits(spark, attempt.properties()):
        spark.sql(_forget_sql(cache_view(cache, row_keys), target, build.source.schema))
    after = head(load_table(pipeline, attempt.table), BRANCH)
    return commits + (before is None or after is None or before.snapshot_id != after.snapshot_id)


def remake_versions(pipeline: Pipeline, spark: SparkSession, build: HistoryBuild) -> DataFrame:
    """Return all versions of the keys that a span touches, from the whole log."""
    span, table = build.source.span, pipeline.table(build.source.schema.name)
    columns = history_through(pipeline, span.until_inclusive).tables.get(table.name)
    source = find_beginning(pipeline, table, columns, is_history=True)
    source = replace(
        source, span=replace(source.span, until_inclusive=span.until_inclusive), keeps_truncated=True
    )
    touched = read_recent_span(pipeline, spark, table.name, span, build.recent_log)
    row_keys = with_row(touched, source.schema, columns=()).distinct()
    every = with_row(read_span(pipeline, spark, table.name, source.span), source.schema)
    is_truncate = F.col("change_kind") == ChangeKind.TRUNCATE.value
    of_rows = every.where(~is_truncate).join(row_keys, ROW, "left_semi")
    log = of_rows.unionByName(every.where(is_truncate))
    changes = read_changes(pipeline, spark, source, log, has_origin=True)
    return make_versions(changes, source.schema, has_partial_updates=source.span.has_partial_updates)


def _forget_sql(view: str, target: str, table: TableSchema) -> str:
    conditions = [
        f"{quote_spark('t', column.name)} <=> {quote_spark('s', column.name)}" for column in table.key_columns
    ]
    return f"MERGE INTO {target} t USING {view} s ON {' AND '.join(conditions)} WHEN MATCHED THEN DELETE"
