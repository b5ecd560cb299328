"""The demo: a simulated Spanner with a busy bank, the platform, and all checks at the end."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cdc_platform.demo.bank import open_bank, sum_of_balances
from cdc_platform.demo.home import open_home, prepare_home
from cdc_platform.demo.live import balances_at_all_cuts, live_view
from cdc_platform.demo.next_steps import Pages, print_next_steps
from cdc_platform.demo.pages import DemoOptions, DemoTools, Stage, start_pages
from cdc_platform.demo.processes import LOOPBACK, Children, free_port
from cdc_platform.errors import SetupError
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.quantities import as_duration
from cdc_platform.pipeline.cycle_loop import follow_source, pause
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema.schema_evolution import find_exclusions
from cdc_platform.printing.lines import print_line, print_text
from cdc_platform.printing.progress_display import show_progress, shown_step
from cdc_platform.spark.launch.connect_server import ConnectServer, start_connect_server, wait_until_ready
from cdc_platform.spark.launch.connect_token import choose_token
from cdc_platform.spark.session.running_tasks import watch_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW_EVERY_S: Final = 2.0
FIRST_WINDOW_S: Final = 10.0
"""Length of the first cycle's read window, in the bank's time."""
CATCH_UP_WITHIN_S: Final = 900.0
DAGSTER_ENDS_WITHIN_S: Final = 2.0
"""Dagster would wait up to half a minute for each of its threads; a killed run loses nothing."""


def run_demo(options: DemoOptions, tools: DemoTools, wants_more: Callable[[], bool]) -> bool:
    """Run the demo; return whether all of its checks pass.

    Raises:
        CdcError: something that the demo needs is missing, or a part of the demo failed.
    """
    with ExitStack() as end, ExitStack() as stack:
        home = stack.enter_context(open_home(options.home))
        children = stack.enter_context(Children(home.folder, home.logs))
        print_line("Starting the simulator and its bank ...")
        with shown_step("start of the bank"):
            bank = open_bank(home, children, options.rate, options.partition_life_s)
            goes_on = prepare_home(home, bank)
        # Shown while the stack closes.
        stack.callback(lambda: end.enter_context(shown_step("end of the demo's processes")))
        stack.callback(print_line, "Ending the demo's processes ...")
        lake = f"the lake {'continues' if goes_on else 'begins'} in {home.lake}"
        print_line(f"The bank is at {bank['emulator_host']}; {lake}")
        print_line(_describe_end(options))
        stage = Stage(options, tools, home, bank, children, _for_seconds(options.seconds, wants_more))
        return _run_with_ui(stage, wants_more) if options.ui else _run_locally(stage, wants_more)


def _for_seconds(seconds: float | None, wants_more: Callable[[], bool]) -> Callable[[], bool]:
    if seconds is None:
        return wants_more
    end = time.monotonic() + seconds
    return lambda: wants_more() and time.monotonic() < end


def _describe_end(options: DemoOptions) -> str:
    """Return when the demo ends, and what it does then."""
    if options.seconds is None:
        return (
            "Ctrl-C ends it, and a new start resumes from there. With `--seconds N` it ends by itself and "
            "checks everything."
        )
    return (
        f"After {as_duration(options.seconds)} it ends by itself. Then the tables catch up and every check "
        "runs, which takes about a minute more. The exit code is 0 only if all of them pass."
    )


def _run_locally(stage: Stage, is_wanted: Callable[[], bool]) -> bool:
    settings = stage.tools.load_settings(stage.home.defs)
    pipeline, spark = open_pipeline(settings), stage.tools.start_spark(settings)
    # A client that outlives its server reports that on the last line.
    with closing(pipeline.source):
        _report_exclusions(pipeline)
        _publish_first(stage, pipeline, spark)
        _print_next_steps(stage, pipeline)
        with live_view(pipeline) as show:
            for _outcome in follow_source(pipeline, spark, stage.wants_more, _as_fault):
                stage.children.check()
                show()
        return _finish(stage, pipeline, spark, is_wanted)


def _publish_first(stage: Stage, pipeline: Pipeline, spark: "SparkSession") -> None:
    """Run short cycles until there is a cut, and show their progress."""
    start_s = time.monotonic()
    pipeline.progress.count_tasks = watch_tasks(spark)
    # The bank has run while Spark started: the first cut need not wait for all of those changes, nor for the
    # checks of a new log, which the next run makes as it begins.
    every_s = pipeline.settings.check_every_s if newest_cut(pipeline.lake) is not None else None
    settings = replace(pipeline.settings, max_window_s=FIRST_WINDOW_S, check_every_s=every_s)
    short = replace(pipeline, settings=settings)
    with show_progress(short.progress), short.progress.step("first cut"):
        for outcome in follow_source(short, spark, stage.wants_more, _as_fault):
            stage.children.check()
            if outcome.cut is not None:
                break
    if stage.wants_more():
        print_line(f"The first cut is published, {time.monotonic() - start_s:.1f} s after Spark's start.")


def _print_next_steps(stage: Stage, pipeline: Pipeline, pages: Pages | None = None) -> None:
    cut = newest_cut(pipeline.lake)
    if cut is not None and stage.wants_more():
        print_next_steps(pipeline, cut, stage.home.defs, pages)


def _run_with_ui(stage: Stage, is_wanted: Callable[[], bool]) -> bool:
    settings = stage.tools.load_settings(stage.home.defs)
    server, remote = _start_connect_server(stage, settings)
    settings = replace(settings, spark=replace(settings.spark, remote=remote))
    pipeline = open_pipeline(settings)
    with closing(pipeline.source):
        with shown_step("start of Spark"):
            # Neither needs Spark.
            _report_exclusions(pipeline)
            trace_lineage(pipeline)
            wait_until_ready(server)
        with _session(stage, settings) as spark:
            # Before Dagster takes over: its own first run would come much later.
            _publish_first(stage, pipeline, spark)
        if stage.wants_more():
            _run_dagster(stage, pipeline, remote)
        if stage.options.seconds is None or not is_wanted():
            return stage.options.seconds is None
        with _session(stage, settings) as spark:
            return _finish(stage, pipeline, spark, is_wanted)


def _run_dagster(stage: Stage, pipeline: Pipeline, remote: str) -> None:
    """Let Dagster run the pipeline while more is wanted."""
    pages = start_pages(stage, remote)
    _print_next_steps(stage, pipeline, pages)
    with live_view(pipeline) as show:
        while stage.wants_more():
            stage.children.check()
            show()
            pause(VIEW_EVERY_S, stage.wants_more)
    with shown_step("end of Dagster"):
        stage.children.stop("dagster", signal.SIGINT, DAGSTER_ENDS_WITHIN_S)


@contextmanager
def _session(stage: Stage, settings: PipelineSettings) -> Iterator["SparkSession"]:
    """Yield a client of the Spark Connect server; it ends before the server, to which it would reconnect."""
    spark = stage.tools.start_spark(settings)
    # Ctrl-C reaches the server, too: the client would retry to reach it for ten minutes.
    spark.client.set_retry_policies([])  # type: ignore[operator]  # a property that pyspark wraps
    try:
        yield spark
    finally:
        spark.stop()


def _report_exclusions(pipeline: Pipeline) -> None:
    for finding in find_exclusions(pipeline):
        print_line((f"Note: {finding}", "yellow"))


def _start_connect_server(stage: Stage, settings: PipelineSettings) -> tuple[ConnectServer, str]:
    port, log = free_port(), stage.children.log_of("spark")
    print_line(f"Starting a Spark Connect server; the first start fetches its packages ({log}) ...")
    token = choose_token()
    server = start_connect_server(settings.spark, settings.lake, port, log, token)
    stage.children.adopt("spark", server.process)
    return server, f"sc://{LOOPBACK}:{port}/;token={token}"


def _finish(stage: Stage, pipeline: Pipeline, spark: "SparkSession", is_wanted: Callable[[], bool]) -> bool:
    """Catch up with the bank and run the checks, unless the user ends the demo."""
    if stage.options.seconds is None or not is_wanted():
        return stage.options.seconds is None
    print_line()
    _catch_up(pipeline, spark, is_wanted)
    print_line()
    checks_hold = stage.tools.run_checks(pipeline, spark, is_wanted)
    if not is_wanted():
        return False
    stage.tools.print_status(pipeline)
    return _check_balances(pipeline, sum_of_balances(stage.bank)) and checks_hold


def _catch_up(pipeline: Pipeline, spark: "SparkSession", is_wanted: Callable[[], bool]) -> None:
    target_micros = pipeline.source.clock_micros() - 1
    deadline = time.monotonic() + CATCH_UP_WITHIN_S

    def wants_more() -> bool:
        return is_wanted() and time.monotonic() < deadline

    pipeline.progress.count_tasks = watch_tasks(spark)
    with live_view(pipeline) as show:
        for outcome in follow_source(pipeline, spark, wants_more, _as_fault):
            show()
            if outcome.cut is not None and outcome.cut.position_micros >= target_micros:
                return
    if is_wanted():
        raise SetupError(
            f"The pipeline did not catch up within {CATCH_UP_WITHIN_S:.0f} s; use a lower --rate."
        )


def _check_balances(pipeline: Pipeline, expected: int) -> bool:
    """Check the sum of all balances at every published cut; before the bank opens there are no accounts."""
    cuts = mismatches = 0
    is_open = False
    for balances in balances_at_all_cuts(pipeline):
        cuts += 1
        is_open = is_open or balances.accounts > 0
        if is_open and balances.total != expected:
            mismatches += 1
            text = f"Cut {balances.cut.cut}: sum of balances {balances.total:,}, not {expected:,}"
            print_line((text, "red"))
    holds = mismatches == 0 and cuts > 0 and is_open
    text = f"Sum of balances: {expected:,} in Spanner, and at {cuts - mismatches} of {cuts} published cuts."
    print_line((text, "green" if holds else "red"))
    return holds


def _as_fault(error: Exception) -> None:
    print_text(f"{type(error).__name__}: {error}", "yellow", err=True)
