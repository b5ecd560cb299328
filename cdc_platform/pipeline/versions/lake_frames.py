"""Spark frames of the lake's tables; each frame reads one version, which later commits do not change."""

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.lost_tables import require_published, stored_version
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.spark.frames.table_frames import read_current, read_version, with_columns_of


def read_log(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the present change log."""
    return read_own(pipeline, spark, LOG)


def read_data_changes(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the raw records with changes as they were read, possibly with duplicates."""
    return read_own(pipeline, spark, RAW).where(F.col("kind") == RecordKind.DATA_CHANGE.value)


def read_own(pipeline: Pipeline, spark: SparkSession, name: str, version: Table | None = None) -> DataFrame:
    """Return a system table, such as `change_log`, with all of its current columns.

    Its version is the newest one unless given.
    """
    table, target = version or pipeline.lake.system_table(name), pipeline.lake.spark_system_table(name)
    snapshot = head(table)
    if snapshot is None:
        # Not the current rows, which must not be cached, and not an empty Python list, which starts a worker.
        nothing = spark.range(0).drop("id").where(F.lit(False))
        return with_columns_of(nothing, read_current(spark, target).schema)
    rows = read_version(spark, target, snapshot.snapshot_id)
    if snapshot.schema_id == table.metadata.current_schema_id:
        return rows
    return with_columns_of(rows, read_current(spark, target).schema)


def read_table(pipeline: Pipeline, spark: SparkSession, table: str, snapshot_id: int) -> DataFrame:
    """Return a version of a source table's table or history, with its columns of that time.

    Raises:
        CommitConflict: another run has expired the version.
        LakeDamaged: the newest cut names the table, but another program has dropped or replaced it.
    """
    stored_table = load_table(pipeline, table)
    version = stored_version(stored_table, snapshot_id)
    if version is None:
        require_published(pipeline.lake, stored_table, table, newest_cut(pipeline.lake))
        raise CommitConflict(
            f"Another run has expired snapshot {snapshot_id} of table `{table}`, which this run was about to "
            "read; the next cycle reads what is there then."
        )
    return read_version(spark, pipeline.lake.spark_table(table), version.snapshot_id)
