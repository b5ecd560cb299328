"""The same ticks on a Spark Connect server that the platform starts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.errors import SparkUnreachable
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.spark.connect_server import start_connect_server, wait_until_ready
from cdc_platform.spark.settings import SparkSettings
from cdc_platform_tests.pipeline.bank import expected_balances
from cdc_platform_tests.programs import free_port
from cdc_platform_tests.spark_fixtures import TEST_SPARK, require_java


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server for a lake in a temporary folder; gives its address."""
    require_java()
    port, log = free_port(), tmp_path / "server.log"
    process = start_connect_server(TEST_SPARK, LakeSettings(str(tmp_path / "lake")), port, log)
    try:
        wait_until_ready(process, port, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.integration
def test_ticks_run_on_a_connect_server(server: str, tmp_path: Path) -> None:
    """Reading, ordering, merging, publishing, rebuilding and maintenance use nothing that Connect lacks."""
    command = [sys.executable, "-m", "cdc_platform_tests.spark.connect_run", str(tmp_path / "lake"), server]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-5000:]
    found = {int(account): balance for account, balance in json.loads(run.stdout.splitlines()[-1]).items()}
    assert {**expected_balances(2), 5: 500} == found


@pytest.mark.integration
def test_a_server_that_stops_while_starting_is_told(tmp_path: Path) -> None:
    """The error names the log, where the reason is."""
    require_java()
    log = tmp_path / "server.log"
    broken = SparkSettings(master="no such master")
    process = start_connect_server(broken, LakeSettings(str(tmp_path)), free_port(), log)
    with pytest.raises(SparkUnreachable, match=r"stopped while starting; its log: .*server\.log"):
        wait_until_ready(process, free_port(), log)


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """Waiting ends, and says how long it took."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with pytest.raises(SparkUnreachable, match="did not answer within 0 s"):
                wait_until_ready(process, free_port(), tmp_path / "server.log", timeout_s=0.3)
        finally:
            process.kill()
