"""The same cycles on a Spark Connect server; the demo's UI is tested on one that the platform starts."""

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import SparkUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.session.connect_server import ConnectServer, start_connect_server, wait_until_ready
from cdc_platform.spark.session.spark_settings import SparkSettings
from cdc_platform_tests.pipeline.bank import expected_balances
from cdc_platform_tests.programs import free_port
from cdc_platform_tests.spark_fixtures import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService"


@pytest.fixture
def server(spark: "SparkSession") -> str:
    """A server in the JVM of the tests, on their lake, which ends with the JVM; gives its address."""
    service = getattr(spark._jvm, f"{SERVICE}$").__getattr__("MODULE$")  # noqa: SLF001  there is no other way
    service.start(spark._jsc.sc())  # noqa: SLF001  nor here
    return f"sc://127.0.0.1:{service.localPort()}"


@pytest.mark.integration
def test_cycles_run_on_a_connect_server(server: str, session_lake: LakeSettings) -> None:
    """All steps of cycles and maintenance use nothing that Connect lacks, and settings of a session count."""
    command = [sys.executable, "-m", "cdc_platform_tests.spark.connect_run", session_lake.path, server]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-5000:]
    balances = {int(account): balance for account, balance in json.loads(run.stdout.splitlines()[-1]).items()}
    assert {**expected_balances(2), 5: 500} == balances


@pytest.mark.integration
def test_a_server_that_stops_while_starting_is_reported(tmp_path: Path) -> None:
    """The error names the log, where the reason is; the file with its secrets is gone, and no other one."""
    require_java()
    log = tmp_path / "server.log"
    broken = SparkSettings(master="no such master", conf={"spark.proxy.pwd": "hush"})
    log.touch(mode=0o644)
    mine = tmp_path / "server.conf"
    mine.write_text("my own")
    server = start_connect_server(broken, LakeSettings(str(tmp_path)), free_port(), log, "token")
    secrets = server.secrets_folder / "spark.conf"
    assert "hush" in secrets.read_text()
    assert (stat.S_IMODE(secrets.stat().st_mode), stat.S_IMODE(secrets.parent.stat().st_mode)) == (
        0o600,
        0o700,
    )
    with pytest.raises(SparkUnreachable, match=r"stopped while starting; its log: .*server\.log"):
        wait_until_ready(server)
    assert not server.secrets_folder.exists()
    assert mine.read_text() == "my own"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_server_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """Waiting ends, and says how long it took."""
    with subprocess.Popen(["sleep", "60"]) as process:
        server = ConnectServer(process, free_port(), tmp_path / "server.log", tmp_path / "secrets")
        try:
            with pytest.raises(SparkUnreachable, match="did not answer within 0 s"):
                wait_until_ready(server, timeout_s=0.3)
        finally:
            process.kill()
