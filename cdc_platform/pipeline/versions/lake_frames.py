"""Tables of the lake as Spark frames; each frame reads one version, which later commits do not change."""

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.catalog.lake import LOG, RAW
from cdc_platform.lake.commits.commits import head
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.spark.frames.table_frames import read_current, read_version, with_columns_of


def read_log(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the change log as it is now."""
    return read_own(pipeline, spark, LOG)


def read_data_changes(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the raw records that carry changes, as they were read: some may be there several times."""
    return read_own(pipeline, spark, RAW).where(F.col("kind") == RecordKind.DATA_CHANGE.value)


def read_own(pipeline: Pipeline, spark: SparkSession, name: str, version: Table | None = None) -> DataFrame:
    """Return one of the platform's own tables, with all of its current columns.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        name: name of the table, such as `change_log`.
        version: the version of the table; the newest one unless given.
    """
    table, target = version or pipeline.lake.system_table(name), pipeline.lake.spark_system_table(name)
    snapshot = head(table)
    if snapshot is None:
        # Neither the current rows, which must not be cached, nor no Python rows, which start a Python worker.
        nothing = spark.range(0).drop("id").where(F.lit(False))
        return with_columns_of(nothing, read_current(spark, target).schema)
    rows = read_version(spark, target, snapshot.snapshot_id)
    if snapshot.schema_id == table.metadata.current_schema_id:
        return rows
    return with_columns_of(rows, read_current(spark, target).schema)


def read_table(pipeline: Pipeline, spark: SparkSession, table: str, snapshot_id: int) -> DataFrame:
    """Return a version of the table or history of a source table, with the columns that it had then."""
    return read_version(spark, pipeline.lake.spark_table(table), snapshot_id)
