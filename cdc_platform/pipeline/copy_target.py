"""The lake's table that a copy is written into: until the stream takes over, it has the copy's columns."""

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits import count_rows, head
from cdc_platform.lake.copies import CopyPlan
from cdc_platform.model.table_options import stored_schema
from cdc_platform.model.table_schema import TableSchema, spark_type
from cdc_platform.pipeline.adapt import make_table
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.sources.spanner.copy_pieces import columns_from_text


def prepare_target(pipeline: Pipeline, spark: SparkSession, plan: CopyPlan) -> Table:
    """Return the table that a copy is written into, with the columns that the source had at its moment.

    One that has others is of an earlier plan. No cut has named it, so it is made anew, and what it holds of
    a copy is copied again: pieces with other columns would not go with the rest.

    Raises:
        LakeError: the table has rows that no copy has brought.
    """
    schema = stored_schema(columns_from_text(plan.columns), pipeline.options(plan.table))
    found = pipeline.lake.table(plan.table)
    if found is not None and not _has_columns(pipeline, spark, schema):
        if count_rows(head(found)) != 0:
            raise LakeError(
                f"Table `{plan.table}` has other columns than its initial copy, and rows that are not of the "
                "pipeline. Move it away: the pipeline makes a table of this name."
            )
        spark.sql(f"DROP TABLE {pipeline.lake.spark_table(plan.table)}")
    return make_table(pipeline, spark, schema)


def _has_columns(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> bool:
    found = spark.table(pipeline.lake.spark_table(schema.name)).schema
    there = {field.name: field.dataType.simpleString() for field in found.fields}
    return there == {column.name: spark_type(column.type) for column in schema.columns}
