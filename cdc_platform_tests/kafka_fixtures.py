"""Fixtures of a Kafka that connectors write to."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cdc_platform_tests.servers.jars import require_jars
from cdc_platform_tests.servers.kafka import CONNECTOR, Broker, broker
from cdc_platform_tests.spark_fixtures import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker; tests keep apart by topic."""
    require_java()
    with broker(tmp_path_factory.mktemp("kafka") / "broker") as actual:
        yield actual


@pytest.fixture
def kafka_spark(spark: "SparkSession") -> "SparkSession":
    """The session, which has Spark's source of Kafka as well."""
    for jar in require_jars(*CONNECTOR):
        spark.sql(f"ADD JAR '{jar}'")
    return spark
