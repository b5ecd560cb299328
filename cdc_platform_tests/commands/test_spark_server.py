"""`cdc-platform spark-server`: runs find the Spark that their file names, until it is interrupted."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.pipeline.bank import expected_balances
from cdc_platform_tests.programs import COMMAND_LINE, free_port, start
from cdc_platform_tests.spark_fixtures import require_java
from cdc_platform_tests.yaml_files import bank_attributes, write_defs


@pytest.mark.integration
def test_ticks_run_on_the_server_until_it_is_interrupted(tmp_path: Path) -> None:
    """It serves the lake of the file at the address of the file, and ends with exit code 0."""
    require_java()
    remote = f"sc://127.0.0.1:{free_port()}"
    defs = write_defs(tmp_path, bank_attributes(spark={"remote": remote}))
    log = tmp_path / "spark.log"
    with start(tmp_path / "said", COMMAND_LINE, "spark-server", defs, "--log", log) as server:
        server.wait_for(f"The runs of `bank` find Spark at {remote}", within_s=180)
        module = "cdc_platform_tests.spark.connect_run"
        command = [sys.executable, "-m", module, str(tmp_path / "lake"), remote]
        ticks = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert ticks.returncode == 0, ticks.stderr[-5000:]
        found = json.loads(ticks.stdout.splitlines()[-1])
        assert {**expected_balances(2), 5: 500} == {int(one): balance for one, balance in found.items()}
        server.process.send_signal(signal.SIGINT)
        assert server.ends_with(within_s=60) == 0


@pytest.mark.parametrize(
    ("spark", "told"),
    [
        ({}, "is missing"),
        ({"remote": "sc://spark.example.com:15002/;token=abc"}, "must be of this machine"),
        ({"remote": "http://127.0.0.1:15002"}, "must be of this machine"),
        ({"remote": "sc://127.0.0.1"}, "must be of this machine"),
    ],
)
def test_an_address_that_no_server_can_have_is_told(tmp_path: Path, spark: dict[str, str], told: str) -> None:
    """The error names the setting, and never a token."""
    code, _, said = run("spark-server", write_defs(tmp_path, bank_attributes(spark=spark)))
    assert code == 1
    assert "spark.remote" in said
    assert told in said
    assert "abc" not in said


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    """Runs would otherwise go to whatever answers there."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        remote = f"sc://127.0.0.1:{other.getsockname()[1]}"
        code, _, said = run("spark-server", write_defs(tmp_path, bank_attributes(spark={"remote": remote})))
    assert code == 1
    assert "runs already" in said
