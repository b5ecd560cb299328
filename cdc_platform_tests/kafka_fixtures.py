"""Fixtures of a Kafka that connectors write to."""

from collections.abc import Iterator

import pytest

from cdc_platform_tests.servers.kafka import Broker, broker
from cdc_platform_tests.spark_fixtures import require_java


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for a file, whose tests keep apart by topic.

    Until the end of a run it would take a fiftieth of a processor without any message, which is more than
    another start.
    """
    require_java()
    with broker(tmp_path_factory.mktemp("kafka") / "broker") as actual:
        yield actual
