"""Fixtures of a Kafka that connectors write to."""

from collections.abc import Iterator

import pytest

from cdc_platform_tests.servers.kafka import Broker, broker
from cdc_platform_tests.spark_fixtures import require_java


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker; tests keep apart by topic."""
    require_java()
    with broker(tmp_path_factory.mktemp("kafka") / "broker") as actual:
        yield actual
