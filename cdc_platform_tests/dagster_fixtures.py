"""Fixtures of Dagster, and of a stream that it watches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from cdc_platform_tests.sources.datastream.datastream_server import DatastreamServer
    from cdc_platform_tests.stream_runs import StreamBench


@pytest.fixture
def instance() -> "Iterator[DagsterInstance]":
    """An instance in memory."""
    from dagster import DagsterInstance

    with DagsterInstance.ephemeral() as dagster:
        yield dagster


@pytest.fixture
def stream_server() -> "Iterator[DatastreamServer]":
    """A server of Datastream's API that has no stream yet."""
    from cdc_platform_tests.sources.datastream.datastream_server import datastream_server

    with datastream_server() as server:
        yield server


@pytest.fixture
def stream_bench(stream_server: "DatastreamServer", instance: "DagsterInstance") -> "StreamBench":
    """A pipeline of the server's stream."""
    from cdc_platform_tests.stream_runs import StreamBench

    return StreamBench(stream_server.settings(), instance)
