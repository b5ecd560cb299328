"""Further sessions in the JVM of the tests."""

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import spark_config
from cdc_platform.spark.session.lake_sessions import open_lake_session
from cdc_platform_tests.spark_fixtures import TEST_SPARK


def session_of(spark: SparkSession, lake: LakeSettings) -> SparkSession:
    """Return a session with the catalog of a lake; a session keeps its catalog for life, a JVM has many."""
    return open_lake_session(spark, spark_config(TEST_SPARK, lake))
