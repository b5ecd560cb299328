"""Further sessions in the JVM of the tests."""

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import CATALOG_PREFIX, spark_config
from cdc_platform_tests.spark_fixtures import TEST_SPARK


def session_of(spark: SparkSession, lake: LakeSettings) -> SparkSession:
    """Return a session with the catalog of a lake; a session keeps its catalog for life, a JVM has many."""
    session = spark.newSession()
    for key in session.conf.getAll:
        if key.startswith(CATALOG_PREFIX):
            session.conf.unset(key)
    for key, value in spark_config(TEST_SPARK, lake).items():
        if key.startswith(CATALOG_PREFIX):
            session.conf.set(key, value)
    return session
