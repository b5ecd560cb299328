"""`cdc-platform spark-server`: a long-running Spark Connect server for the runs of a pipeline."""

import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from cdc_platform.commands.options import DEFS, NAME, CommandOnDefs, examples
from cdc_platform.errors import SettingError, SparkUnreachable
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import at_rest, shown_step
from cdc_platform.stopping import interruption

EXAMPLE: Final = "sc://127.0.0.1:15002"
LOOK_EVERY_S: Final = 1.0
ENDS_WITHIN_S: Final = 30.0


@click.command("spark-server", cls=CommandOnDefs, epilog=examples("spark-server examples/my_bank/defs.yaml"))
@DEFS
@NAME
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("spark-server.log"),
    show_default=True,
    help="Spark's log file.",
)
def spark_server(defs: Path, name: str | None, log: Path) -> None:
    """Keep a Spark Connect server running for a pipeline.

    Otherwise each Dagster run starts its own Spark, which takes seconds. The server listens on the address
    of the setting `spark.remote`, on this machine, and uses all other settings of `spark` and `lake`. It
    accepts commands and runs of the same user of the machine, and runs until interrupted.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.demo.processes import end_process
    from cdc_platform.spark.launch.connect_server import start_connect_server, wait_until_ready
    from cdc_platform.spark.launch.connect_token import choose_token, write_token

    settings = load_settings(defs, name)
    port = find_port(settings.spark.remote)
    is_over = interruption()
    print_line(f"Starting a Spark Connect server; the first start fetches its packages ({log}) ...", err=True)
    token = choose_token(settings.spark.remote)
    server = start_connect_server(replace(settings.spark, remote=None), settings.lake, port, log, token)
    file = write_token(port, token)
    try:
        with shown_step("start of the server"):
            wait_until_ready(server)
        print_line(f"The runs of `{settings.name}` find Spark at {settings.spark.address}")
        with at_rest():
            _wait_for_end(server.process, is_over, log)
    except SparkUnreachable:
        # A signal to the whole process group ends the server, too.
        if not is_over.is_set():
            raise
    finally:
        end_process(server.process, ENDS_WITHIN_S)
        file.unlink(missing_ok=True)


def _wait_for_end(server: "subprocess.Popen[bytes]", is_over: threading.Event, log: Path) -> None:
    while server.poll() is None:
        if is_over.wait(LOOK_EVERY_S):
            return
    raise SparkUnreachable(f"The Spark Connect server has stopped; see {log}")


def find_port(remote: str | None) -> int:
    """Return the port of this machine for a server.

    Raises:
        SettingError: the address is missing, is not on this machine, or is in use.
    """
    from cdc_platform.spark.launch.connect_token import LOOPBACK

    if remote is None:
        raise SettingError("spark.remote", f"is missing: set the address of the server, as in {EXAMPLE}")
    url, address = remote.partition(";")[0], urlsplit(remote.partition(";")[0])
    if address.scheme != "sc" or address.hostname not in LOOPBACK or address.port is None:
        raise SettingError(
            "spark.remote", f"must be on this machine for a server to start, as in {EXAMPLE}, but is: {url}"
        )
    with socket.socket() as probe:
        if probe.connect_ex((LOOPBACK[0], address.port)) == 0:
            raise SettingError("spark.remote", f"is the address of a running program: {url}")
    return address.port
