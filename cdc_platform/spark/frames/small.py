"""Running small queries without what only large ones gain from."""

from contextlib import AbstractContextManager
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.spark.session.session_settings import changed_settings

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Iceberg's vectorised reader leaves allocators on the heap for every file that it reads
    # (apache/iceberg#13937); for some thousand rows it is no quicker.
    "spark.sql.iceberg.vectorization.enabled": "false",
}
ONE_TASK: Final = {
    # Otherwise each exchange is a job of its own, after which the rest is planned again.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def interpreted(
    spark: SparkSession, *, when: bool, in_one_task: bool = False
) -> AbstractContextManager[None]:
    """Let the session interpret its expressions, and read files row by row, meanwhile.

    The bounds of a cycle are literals in its queries, so Spark compiles their code again in each cycle; for
    some thousand rows that takes longer than the rows do.

    Args:
        spark: session that does the work.
        when: whether few rows are changed.
        in_one_task: whether nothing that these queries read is large either, so that exchanges need not
            spread it.
    """
    settings = {**INTERPRETED, **(ONE_TASK if in_one_task else {})} if when else {}
    return changed_settings(spark, settings)
