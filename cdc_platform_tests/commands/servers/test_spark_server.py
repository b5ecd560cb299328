"""`cdc-platform spark-server`: runs find the Spark that their file names, until it is interrupted."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.spark.launch.connect_token import token_file
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.pipeline.bank import expected_balances
from cdc_platform_tests.programs import BRIEF_SPARK, COMMAND_LINE, ENVIRONMENT, Program, free_port, start
from cdc_platform_tests.spark_fixtures import TEST_SPARK, require_java
from cdc_platform_tests.yaml_files import bank_attributes, write_defs


@pytest.mark.integration
def test_cycles_run_on_the_server_until_it_is_interrupted(tmp_path: Path) -> None:
    """It serves the lake of the file at the address of the file, and ends with exit code 0.

    All steps of cycles and maintenance use nothing that Connect lacks, and settings of a session count.
    The server of other clients, in the environment, changes nothing.
    """
    require_java()
    remote = f"sc://127.0.0.1:{free_port()}"
    spark = {"remote": remote, "conf": {**TEST_SPARK.conf, "spark.proxy.pwd": "never to be seen"}}
    defs = write_defs(tmp_path, bank_attributes(spark=spark))
    log = tmp_path / "spark.log"
    others = {**ENVIRONMENT, "SPARK_REMOTE": "sc://127.0.0.1:1"}
    command = (COMMAND_LINE, "spark-server", defs, "--log", log)
    with start(tmp_path / "output", *command, environment=others) as server:
        server.wait_for(f"The runs of `bank` find Spark at {remote}", within_s=180)
        module = "cdc_platform_tests.spark.connect_run"
        cycle_command = [sys.executable, "-m", module, str(tmp_path / "lake"), remote]
        cycles = subprocess.run(cycle_command, capture_output=True, text=True, timeout=300, check=False)
        assert cycles.returncode == 0, cycles.stderr[-5000:]
        statuses = json.loads(cycles.stdout.splitlines()[-1])
        assert {**expected_balances(2), 5: 500} == {int(item): balance for item, balance in statuses.items()}
        _check_others_are_refused(tmp_path, defs)
        server.process.send_signal(signal.SIGINT)
        assert server.ends_with(within_s=60) == 0
    assert not token_file(urlsplit(remote).port or 0).exists()


@pytest.mark.integration
def test_an_interrupted_start_is_no_error(tmp_path: Path) -> None:
    """Ctrl-C also ends the server that is about to start, and the command ends with exit code 0."""
    require_java()
    defs = write_defs(tmp_path, bank_attributes(spark={"remote": f"sc://127.0.0.1:{free_port()}"}))
    log = tmp_path / "spark.log"
    log.touch()
    command = (COMMAND_LINE, "spark-server", defs, "--log", log)
    with start(tmp_path / "output", *command, environment=BRIEF_SPARK) as server:
        Program(server.process, log).wait_for_match(".", within_s=60)
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.ends_with(within_s=60) == 0, server.output()


def _check_others_are_refused(folder: Path, defs: Path) -> None:
    """Check that no command line shows the token, and that who cannot read its file gets no session."""
    file = token_file(urlsplit(load_settings(defs).spark.address).port or 0)
    token = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [line for line in lines if token in line or b"never to be seen" in line] == []
    assert list(folder.glob("*.conf")) == []
    stranger = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache of a stranger")}
    code = "from pathlib import Path; from cdc_platform.components.loading import load_settings; "
    code += "from cdc_platform.resources import spark_session; import sys; "
    code += "spark_session(load_settings(Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(defs)]
    refused = subprocess.run(command, capture_output=True, text=True, env=stranger, timeout=120, check=False)
    assert "SparkUnreachable: The Spark Connect server rejects clients without its token" in refused.stderr


@pytest.mark.parametrize(
    ("spark", "text"),
    [
        ({}, "is missing"),
        ({"remote": "sc://spark.example.com:15002/;token=abc"}, "must be on this machine"),
        ({"remote": "http://127.0.0.1:15002"}, "must look like sc://HOST:15002"),
        ({"remote": "sc://127.0.0.1"}, "must be on this machine"),
    ],
)
def test_an_address_that_no_server_can_have_is_an_error(
    tmp_path: Path, spark: dict[str, str], text: str
) -> None:
    """The error names the setting, and never a token."""
    code, _, errors = run("spark-server", write_defs(tmp_path, bank_attributes(spark=spark)))
    assert code == 1
    assert "spark.remote" in errors
    assert text in errors
    assert "abc" not in errors


def test_an_address_that_is_taken_is_an_error(tmp_path: Path) -> None:
    """Otherwise, runs would use any program that answers there."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        remote = f"sc://127.0.0.1:{other.getsockname()[1]}"
        code, _, errors = run("spark-server", write_defs(tmp_path, bank_attributes(spark={"remote": remote})))
    assert code == 1
    assert "is the address of a running program" in errors
