"""The demo: a simulated Spanner, a bank that never rests, and the platform; at the end, the proof."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.request import urlopen

import click

from cdc_platform.demo.bank import BankSettings, open_database, sum_of_balances
from cdc_platform.demo.home import REMOTE_VARIABLE, DemoHome, open_home, prepare_home
from cdc_platform.demo.live import balances_at_all_cuts, describe_live, show
from cdc_platform.demo.ports import LOOPBACK, answers, free_port
from cdc_platform.demo.processes import Children
from cdc_platform.demo.servers import DemoServer, open_bank, start_writer, stop_writer
from cdc_platform.errors import SetupError
from cdc_platform.pipeline.cycle_loop import follow_source, pause
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.schema.evolve import find_exclusions
from cdc_platform.printing import print_line, print_text
from cdc_platform.spark.session.connect_server import start_connect_server, wait_until_ready
from cdc_platform.spark.session.connect_token import choose_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW_EVERY_S: Final = 2.0
UI_WITHIN_S: Final = 120.0
DASHBOARD_PORT: Final = 3030
CATCH_UP_WITHIN_S: Final = 900.0


@dataclass(frozen=True)
class DemoOptions:
    """Command-line options; `seconds` is None for a demo that runs until it is interrupted."""

    home: Path
    seconds: float | None
    ui: bool
    rate: float
    token_life_s: int
    port: int
    server: DemoServer = DemoServer.SIMULATOR


@dataclass(frozen=True)
class DemoTools:
    """Functions of the layers above that the demo needs."""

    load_settings: Callable[[Path], PipelineSettings]
    start_spark: Callable[[PipelineSettings], "SparkSession"]
    run_checks: Callable[[Pipeline, "SparkSession", Callable[[], bool]], bool]
    describe_status: Callable[[Pipeline], str]


@dataclass(frozen=True)
class Stage:
    """A demo whose bank is writing."""

    options: DemoOptions
    tools: DemoTools
    home: DemoHome
    bank: BankSettings
    children: Children
    wants_more: Callable[[], bool]


def run_demo(options: DemoOptions, tools: DemoTools, wants_more: Callable[[], bool]) -> bool:
    """Run the demo; return whether all that it was to prove holds.

    Raises:
        CdcError: something that the demo needs is missing, or a part of it failed.
    """
    with ExitStack() as stack:
        home = stack.enter_context(open_home(options.home))
        children = stack.enter_context(Children(home.folder, home.logs))
        click.echo(f"Starting the {options.server} and its bank ...")
        bank = open_bank(options.server, stack, home, children, options.rate, options.token_life_s)
        goes_on = prepare_home(home, bank)
        click.echo(
            f"The bank is at {bank.host}; the lake {'goes on' if goes_on else 'begins'} in {home.lake}"
        )
        start_writer(options.server, bank, children, options.rate)
        stage = Stage(options, tools, home, bank, children, _for_seconds(options.seconds, wants_more))
        return _run_with_ui(stage, wants_more) if options.ui else _run_locally(stage, wants_more)


def _for_seconds(seconds: float | None, wants_more: Callable[[], bool]) -> Callable[[], bool]:
    if seconds is None:
        return wants_more
    end = time.monotonic() + seconds
    return lambda: wants_more() and time.monotonic() < end


def _run_locally(stage: Stage, is_wanted: Callable[[], bool]) -> bool:
    settings = stage.tools.load_settings(stage.home.defs)
    pipeline, spark = open_pipeline(settings), stage.tools.start_spark(settings)
    # A client that outlives its server says so on the last line.
    with closing(pipeline.source):
        _report_exclusions(pipeline)
        for _outcome in follow_source(pipeline, spark, stage.wants_more, _as_fault):
            stage.children.check()
            show(describe_live(pipeline))
        return _finish(stage, pipeline, spark, is_wanted)


def _run_with_ui(stage: Stage, is_wanted: Callable[[], bool]) -> bool:
    settings = stage.tools.load_settings(stage.home.defs)
    remote = _start_connect_server(stage, settings)
    settings = replace(settings, spark=replace(settings.spark, remote=remote))
    pipeline = open_pipeline(settings)
    with closing(pipeline.source):
        _report_exclusions(pipeline)
        _start_dagster(stage, remote)
        while stage.wants_more():
            stage.children.check()
            show(describe_live(pipeline))
            pause(VIEW_EVERY_S, stage.wants_more)
        if stage.options.seconds is None or not is_wanted():
            return stage.options.seconds is None
        stage.children.stop("dagster", signal.SIGINT)
        spark = stage.tools.start_spark(settings)
        try:
            return _finish(stage, pipeline, spark, is_wanted)
        finally:
            # Otherwise the client would go on looking for its server after we have stopped it.
            spark.stop()


def _report_exclusions(pipeline: Pipeline) -> None:
    for finding in find_exclusions(pipeline):
        print_line(f"Note: {finding}", fg="yellow")


def _start_connect_server(stage: Stage, settings: PipelineSettings) -> str:
    port, log = free_port(), stage.children.log_of("spark")
    click.echo(f"Starting a Spark Connect server; the first start fetches its packages ({log}) ...")
    token = choose_token()
    server = start_connect_server(settings.spark, settings.lake, port, log, token)
    stage.children.adopt("spark", server.process)
    wait_until_ready(server)
    return f"sc://{LOOPBACK}:{port}/;token={token}"


def _start_dagster(stage: Stage, remote: str) -> None:
    port, page_port = _choose_port(stage.options.port), _choose_port(DASHBOARD_PORT)
    address, page_address = (f"http://{LOOPBACK}:{number}" for number in (port, page_port))
    environment = {
        "DAGSTER_HOME": str(stage.home.dagster),
        "CDC_PLATFORM_DEFS": str(stage.home.defs),
        "CDC_PLATFORM_DAGSTER_URL": address,
        "CDC_PLATFORM_DASHBOARD_URL": page_address,
        REMOTE_VARIABLE: remote,
    }
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(stage.home.workspace)]
    stage.children.start("dagster", [*command, "-h", LOOPBACK, "-p", str(port)], environment)
    page = [sys.executable, "-m", "cdc_platform.cli", "dashboard", str(stage.home.defs)]
    stage.children.start("dashboard", [*page, "--host", LOOPBACK, "--port", str(page_port)], environment)
    click.echo("Starting Dagster and the status page ...")
    _wait_for(stage, "dashboard", f"{page_address}/metrics")
    click.secho(f"Status page: {page_address}", bold=True)
    _wait_for(stage, "dagster", f"{address}/server_info")
    click.secho(f"Dagster's UI: {address}   (logs: {stage.home.logs})", bold=True)


def _choose_port(wanted: int) -> int:
    return free_port() if answers(wanted) else wanted


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
        raise SetupError(f"{name} did not answer within {UI_WITHIN_S:.0f} s: {stage.children.log_of(name)}")


def _finish(stage: Stage, pipeline: Pipeline, spark: "SparkSession", is_wanted: Callable[[], bool]) -> bool:
    """Let the bank rest, catch up with it, and prove that everything is right, unless the user ends it."""
    if stage.options.seconds is None or not is_wanted():
        return stage.options.seconds is None
    last_words = stop_writer(stage.options.server, stage.children)
    click.echo("" if last_words is None else f"\nThe bank has closed: {last_words}")
    _catch_up(pipeline, spark, is_wanted)
    click.echo()
    checks_hold = stage.tools.run_checks(pipeline, spark, is_wanted)
    if not is_wanted():
        return False
    print_text(stage.tools.describe_status(pipeline))
    with open_database(stage.bank) as database:
        expected = sum_of_balances(database)
    return _check_balances(pipeline, expected) and checks_hold


def _catch_up(pipeline: Pipeline, spark: "SparkSession", is_wanted: Callable[[], bool]) -> None:
    target_micros = pipeline.source.clock_micros() - 1
    deadline = time.monotonic() + CATCH_UP_WITHIN_S

    def wants_more() -> bool:
        return is_wanted() and time.monotonic() < deadline

    for outcome in follow_source(pipeline, spark, wants_more, _as_fault):
        show(describe_live(pipeline))
        if outcome.cut is not None and outcome.cut.position_micros >= target_micros:
            return
    if is_wanted():
        raise SetupError(f"The pipeline did not catch up within {CATCH_UP_WITHIN_S:.0f} s.")


def _check_balances(pipeline: Pipeline, expected: int) -> bool:
    """Look at the sum of all balances at every published cut; before the bank opened there is no account."""
    cuts = wrong = 0
    is_open = False
    for balances in balances_at_all_cuts(pipeline):
        cuts += 1
        is_open = is_open or balances.accounts > 0
        if is_open and balances.total != expected:
            wrong += 1
            click.secho(
                f"Cut {balances.cut.cut}: sum of balances {balances.total:,}, not {expected:,}", fg="red"
            )
    holds = wrong == 0 and cuts > 0 and is_open
    click.secho(
        f"Sum of balances: {expected:,} in Spanner, and at {cuts - wrong} of {cuts} published cuts.",
        fg="green" if holds else "red",
    )
    return holds


def _as_fault(error: Exception) -> None:
    print_text(f"{type(error).__name__}: {error}", fg="yellow", err=True)
