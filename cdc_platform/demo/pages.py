"""Pages of a running demo: Dagster's UI and the status page."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.request import urlopen

from cdc_platform.demo.home import REMOTE_VARIABLE, DemoHome
from cdc_platform.demo.next_steps import Pages
from cdc_platform.demo.processes import LOOPBACK, Children, answers, free_port
from cdc_platform.errors import SetupError
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.progress_display import shown_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UI_WITHIN_S: Final = 120.0
DASHBOARD_PORT: Final = 3030


@dataclass(frozen=True)
class DemoOptions:
    """Command-line options; `seconds` is None for a demo that runs until it is interrupted."""

    home: Path
    seconds: float | None
    ui: bool
    rate: float
    partition_life_s: int
    port: int


@dataclass(frozen=True)
class DemoTools:
    """Functions from higher layers that the demo needs."""

    load_settings: Callable[[Path], PipelineSettings]
    start_spark: Callable[[PipelineSettings], "SparkSession"]
    run_checks: Callable[[Pipeline, "SparkSession", Callable[[], bool]], bool]
    print_status: Callable[[Pipeline], None]


@dataclass(frozen=True)
class Stage:
    """A demo with a running bank; `bank` are the names to connect with to it."""

    options: DemoOptions
    tools: DemoTools
    home: DemoHome
    bank: Mapping[str, str]
    children: Children
    wants_more: Callable[[], bool]


def start_pages(stage: Stage, remote: str) -> Pages:
    """Start Dagster and the status page, and return their addresses once they answer."""
    port, page_port = _choose_port(stage.options.port), _choose_port(DASHBOARD_PORT)
    address, page_address = (f"http://{LOOPBACK}:{number}" for number in (port, page_port))
    environment = {
        "DAGSTER_HOME": str(stage.home.dagster),
        "CDC_PLATFORM_DEFS": str(stage.home.defs),
        "CDC_PLATFORM_DAGSTER_URL": address,
        "CDC_PLATFORM_DASHBOARD_URL": page_address,
        REMOTE_VARIABLE: remote,
    }
    print_line("Starting Dagster and the status page ...")
    create_storage(stage.home.dagster)
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(stage.home.workspace)]
    stage.children.start("dagster", [*command, "-h", LOOPBACK, "-p", str(port)], environment)
    page = [sys.executable, "-m", "cdc_platform.cli", "dashboard", str(stage.home.defs)]
    stage.children.start("dashboard", [*page, "--host", LOOPBACK, "--port", str(page_port)], environment)
    with shown_step("start of Dagster"):
        _wait_for(stage, "dashboard", f"{page_address}/metrics")
        _wait_for(stage, "dagster", f"{address}/server_info")
    if stage.wants_more():
        print_line((f"Status page: {page_address}", "bold"))
        print_line((f"Dagster's UI: {address}   (logs: {stage.home.logs})", "bold"))
    return Pages(page_address, address)


def create_storage(dagster_home: Path) -> None:
    """Create the databases of a Dagster instance before several processes do so at the same time.

    A process that finds the tables of another one before their version is stamped stamps a second version,
    and from then on no process can open the database.
    """
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(dagster_home)) as instance:
        instance.get_run_ids(limit=1)
        instance.get_asset_keys(limit=1)
        instance.all_instigator_state()


def _choose_port(default_port: int) -> int:
    return free_port() if answers(default_port) else default_port


def _wait_for(stage: Stage, name: str, address: str) -> None:
    deadline = time.monotonic() + UI_WITHIN_S
    while time.monotonic() < deadline and stage.wants_more():
        stage.children.check()
        try:
            urlopen(address, timeout=10).close()  # noqa: S310  our own address on loopback
        except (URLError, OSError):
            time.sleep(0.3)
        else:
            return
    if stage.wants_more():
        raise SetupError(
            f"{name} did not answer within {UI_WITHIN_S:.0f} s; see {stage.children.log_of(name)}"
        )
