"""Settings for small queries, which gain nothing from optimisations for large ones."""

from contextlib import AbstractContextManager
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.spark.session.session_settings import changed_settings

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Iceberg's vectorised reader leaves allocators on the heap for every file that it reads
    # (apache/iceberg#13937); for some thousand rows it is not faster.
    "spark.sql.iceberg.vectorization.enabled": "false",
}
ONE_TASK: Final = {
    # Otherwise each exchange is a separate job, after which the rest is planned again.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def interpreted(
    spark: SparkSession, *, when: bool, in_one_task: bool = False
) -> AbstractContextManager[None]:
    """Let the session interpret expressions and read files row by row within the context.

    The bounds of a cycle are literals in its queries, so Spark compiles their code again in each cycle. For
    some thousand rows that takes longer than processing them.

    Args:
        spark: Spark session.
        when: whether few rows change.
        in_one_task: whether everything that these queries read is small, so that exchanges need not
            distribute it.
    """
    settings = {**INTERPRETED, **(ONE_TASK if in_one_task else {})} if when else {}
    return changed_settings(spark, settings)
