"""Spark Connect servers that do not come up; cycles on one are in the test of `cdc-platform spark-server`."""

import socket
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdc_platform.errors import SparkUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.connect_server import ConnectServer, start_connect_server, wait_until_ready
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.programs import free_port
from cdc_platform_tests.spark_fixtures import require_java


@pytest.mark.integration
def test_a_server_that_stops_while_starting_is_reported(tmp_path: Path) -> None:
    """The error names the log, where the reason is; the file with its secrets is gone, and no other one."""
    require_java()
    log = tmp_path / "server.log"
    broken = SparkSettings(conf={"spark.driver.port": "none", "spark.proxy.pwd": "hush"})
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
    with pytest.raises(SparkUnreachable, match=r"stopped while starting; see .*server\.log"):
        wait_until_ready(server)
    assert not server.secrets_folder.exists()
    assert mine.read_text() == "my own"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_server_that_does_not_answer_is_reported(tmp_path: Path, *, is_taken: bool) -> None:
    """Waiting ends, and says how long it took; another program that listens at the port is no answer."""
    with subprocess.Popen(["sleep", "60"]) as process, socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        if is_taken:
            other.listen()
        port = other.getsockname()[1]
        server = ConnectServer(
            process, port, tmp_path / "server.log", tmp_path / "secrets", ExitStack(), "token"
        )
        try:
            with pytest.raises(SparkUnreachable, match="did not answer within 0 s"):
                wait_until_ready(server, timeout_s=0.3)
        finally:
            process.kill()
