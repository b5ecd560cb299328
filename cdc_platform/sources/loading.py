"""Reading through a data source of our own."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource


def load_with(spark: SparkSession, source: type[DataSource], options: Mapping[str, str]) -> DataFrame:
    """Return what a data source reads by some options, after making it known to the session."""
    spark.dataSource.register(source)
    return spark.read.format(source.name()).options(**options).load()
