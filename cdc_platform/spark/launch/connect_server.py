"""A long-running Spark Connect server on loopback, which saves runs the start of a JVM."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc  # type: ignore[import-untyped] # ships no types
import pyspark

from cdc_platform.errors import SparkUnreachable
from cdc_platform.java.java_program import check_java
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.private_files import open_private
from cdc_platform.spark.launch.config import launch_secrets
from cdc_platform.spark.launch.connect_token import CLIENT_VARIABLE
from cdc_platform.spark.launch.connect_token import VARIABLE as TOKEN_VARIABLE
from cdc_platform.spark.launch.jars import check_jars, exclusive_fetch, start_config
from cdc_platform.spark.launch.properties import properties_options, write_properties
from cdc_platform.spark.launch.spark_settings import SparkSettings

SPARK_HOME = Path(pyspark.__file__).parent
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
RELEASE: Final = "/spark.connect.SparkConnectService/ReleaseSession"
"""A call that without a session does nothing but require the token."""


@dataclass(frozen=True)
class ConnectServer:
    """A started server.

    Args:
        process: Spark's process.
        port: its port on loopback.
        log_file: Spark's log file.
        secrets_folder: private folder with its additional settings, during the start.
        fetch: closed when the server has its packages, so that other processes may fetch theirs.
        token: the token that it requires, and other programs do not accept.
    """

    process: "subprocess.Popen[bytes]"
    port: int
    log_file: Path
    secrets_folder: Path
    fetch: ExitStack
    token: str = field(repr=False)


def start_connect_server(
    spark: SparkSettings, lake: LakeSettings, port: int, log_file: Path, token: str
) -> ConnectServer:
    """Start a server for one lake.

    It answers a few seconds later, and accepts only clients that send the token.
    """
    check_java()
    check_jars(spark)
    secrets = launch_secrets(spark, lake)
    conf = {
        **start_config(spark, lake),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", SERVER_CLASS]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    folder, fetch = Path(tempfile.mkdtemp(prefix="cdc_platform-")), ExitStack()
    try:
        fetch.enter_context(exclusive_fetch(conf))
        if secrets:
            write_properties(folder / "spark.conf", secrets)
            command += properties_options(folder / "spark.conf")
        with open_private(log_file, "ab") as log:
            process = subprocess.Popen(  # noqa: S603  the command is Spark's own launcher
                [*command, "spark-internal"],
                env=_environment(token),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
    except OSError:
        fetch.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ConnectServer(process, port, log_file, folder, fetch, token)


def _environment(token: str) -> Mapping[str, str]:
    # The server's Python workers import the platform from its current location.
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    # With the server of clients in its environment, Spark's launcher starts no server.
    inherited = {name: value for name, value in os.environ.items() if name != CLIENT_VARIABLE}
    return inherited | {
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        TOKEN_VARIABLE: token,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def wait_until_ready(server: ConnectServer, timeout_s: float = 180) -> None:
    """Wait until the server answers, delete its private settings, and let others fetch packages.

    Raises:
        SparkUnreachable: it stopped, or did not answer in time.
    """
    try:
        _wait(server, timeout_s)
    finally:
        server.fetch.close()
        shutil.rmtree(server.secrets_folder, ignore_errors=True)


def _wait(server: ConnectServer, timeout_s: float) -> None:
    log_file = server.log_file
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise SparkUnreachable(f"The Spark Connect server stopped while starting; see {log_file}")
        if _answers(server):
            return
        time.sleep(0.2)
    raise SparkUnreachable(
        f"The Spark Connect server did not answer within {timeout_s:.0f} s; see {log_file}"
    )


def _answers(server: ConnectServer) -> bool:
    """Return whether the server itself answers, and not another program that took its port meanwhile."""
    # Shared channels keep the back-off of refused calls, and proxy settings do not apply to loopback.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        try:
            channel.unary_unary(RELEASE)(b"", 1, [("authorization", f"Bearer {server.token}")])
        except grpc.RpcError:
            return False
        return True
