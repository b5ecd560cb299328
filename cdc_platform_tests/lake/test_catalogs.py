"""Other catalogs than the default one: the same ticks, told apart by settings alone."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cdc_platform_tests.lake.services import rest_catalog
from cdc_platform_tests.pipeline.bank import expected_balances
from cdc_platform_tests.servers.postgresql import postgresql, require_postgresql
from cdc_platform_tests.spark_fixtures import require_java

pytestmark = pytest.mark.integration


def run_ticks(lake: Path, catalog: Mapping[str, str]) -> dict[int, int]:
    """Run the small bank's ticks on a catalog in a process of its own, and return the balances."""
    command = [sys.executable, "-m", "cdc_platform_tests.lake.catalog_run", str(lake), json.dumps(catalog)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert run.returncode == 0, run.stderr[-5000:]
    return {int(account): balance for account, balance in json.loads(run.stdout.splitlines()[-1]).items()}


def test_a_postgresql_catalog(tmp_path: Path) -> None:
    """Spark's JDBC catalog and pyiceberg's SQL catalog share one database."""
    require_java()
    programs = require_postgresql()
    # Another user runs it, who cannot look into the folders of a test.
    with TemporaryDirectory() as folder, postgresql(programs, Path(folder) / "cluster") as uri:
        assert expected_balances(2) == run_ticks(tmp_path / "lake", {"type": "sql", "uri": uri})


def test_a_rest_catalog(tmp_path: Path) -> None:
    """Iceberg's own REST test server decides on commits."""
    require_java()
    (tmp_path / "rest").mkdir()
    with rest_catalog(tmp_path / "rest") as uri:
        catalog = {"type": "rest", "uri": uri, "warehouse": (tmp_path / "rest" / "warehouse").as_uri()}
        assert expected_balances(2) == run_ticks(tmp_path / "lake", catalog)
