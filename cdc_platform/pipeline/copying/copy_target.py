"""The lake's table for a copy, which has the copy's columns until the stream takes over."""

import time

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.lake.commits.metadata_files import delete_old_metadata
from cdc_platform.lake.state.copies import COPY_BRANCH, CopyPlan, load_plans
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.model.schema.table_options import stored_schema
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.planned_columns import planned_columns
from cdc_platform.pipeline.schema.table_ddl import make_table
from cdc_platform.pipeline.versions.handover import is_published
from cdc_platform.spark.frames.table_frames import read_current


def prepare_target(pipeline: Pipeline, spark: SparkSession, plan: CopyPlan) -> Table:
    """Return the table for a copy, with the source's columns at the moment of the copy.

    A table with other columns is from an earlier plan. It is in no cut, so it is recreated, and its chunks
    are copied again: chunks with other columns would not match the rest.

    Raises:
        LakeError: the table has rows that are not from a copy.
    """
    schema = stored_schema(planned_columns(pipeline.stream_source, plan), pipeline.options(plan.table))
    target = pipeline.lake.table(plan.table)
    if target is not None and not _has_columns(pipeline, spark, schema):
        if count_rows(head(target)) != 0:
            raise LakeError(
                f"Table `{plan.table}` has other columns than its initial copy, and rows that are not from "
                "the pipeline. Move it away: the pipeline creates a table of this name."
            )
        _remove(pipeline, spark, plan.table)
    return make_table(pipeline, spark, schema)


def remove_orphans(pipeline: Pipeline, spark: SparkSession) -> tuple[str, ...]:
    """Remove the copied rows of tables that the source dropped before they were in a cut.

    Returns:
        a sentence on each table.
    """
    histories, cut = pipeline.schema_history.tables.values(), newest_cut(pipeline.lake)
    unnamed = [
        table.name for table in histories if table.is_dropped and not is_published(None, table.name, cut)
    ]
    plans = load_plans(pipeline.lake) if unnamed else {}
    orphans = [name for name in unnamed if name in plans and _is_orphan(pipeline.lake.table(name), name, cut)]
    for name in orphans:
        _remove(pipeline, spark, name)
    return tuple(
        f"The source dropped `{name}` before its copy was complete: the copied rows are removed."
        for name in orphans
    )


def _is_orphan(stored: Table | None, name: str, cut: Cut | None) -> bool:
    if stored is None or is_published(stored, name, cut):
        return False
    # Any other table of this name in the lake is not the pipeline's.
    return head(stored, COPY_BRANCH) is not None and count_rows(head(stored)) == 0


def _remove(pipeline: Pipeline, spark: SparkSession, table: str) -> None:
    """Remove a table that is in no cut, with its files."""
    stored = pipeline.lake.table(table)
    if stored is not None:
        # Spark deletes only the metadata files that the newest one names.
        delete_old_metadata(stored, time.time_ns() // 1000)
    spark.sql(f"DROP TABLE IF EXISTS {pipeline.lake.spark_table(table)} PURGE")


def _has_columns(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> bool:
    stored = read_current(spark, pipeline.lake.spark_table(schema.name)).schema
    there = {field.name: field.dataType.simpleString() for field in stored.fields}
    return there == {column.name: spark_type(column.type) for column in schema.columns}
