"""`cdc-platform demo`: the platform with a simulated bank."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from cdc_platform.commands.options import FiniteRange, examples
from cdc_platform.commands.pipelines import start_spark
from cdc_platform.commands.reading.check import all_passed, run_checks
from cdc_platform.commands.reading.status import describe_status
from cdc_platform.printing.tables import print_rendered
from cdc_platform.stopping import stop_signals

DEMO_HOME: Final = Path(".cdc_platform")


@click.command(epilog=examples("demo", "demo --seconds 90 --no-ui"))
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEMO_HOME,
    show_default=True,
    help="Folder for the demo's lake, logs and Dagster instance; a later demo resumes from it.",
)
@click.option(
    "--seconds",
    type=FiniteRange(min=1),
    help="Stop by itself after this time; then catch up and check, which takes about a minute more.",
)
@click.option("--no-ui", is_flag=True, help="Run the cycles in this process, without Dagster.")
@click.option("--rate", type=FiniteRange(min=1), default=250, show_default=True, help="Transfers a second.")
@click.option(
    "--partition-life",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Minimum lifetime of a change stream partition, in seconds.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=3000,
    show_default=True,
    help="Port of the UI; a free one if taken.",
)
def demo(home: Path, **options: Any) -> None:
    """Show the platform at work, with a simulated bank.

    Starts a simulated Spanner with a bank that books transfers continuously, and turns its change stream into
    tables of a lake. The sum of all balances never changes. The stream's partitions live only for
    seconds: they split, merge and move.

    Once the first cut is published, within seconds of Spark's start, it prints suggestions for what to
    look at next.

    With --seconds it ends by itself and runs every check. The exit code is 0 only if all of them pass and
    the sum of all balances is right at every published cut. The checks run after that time, not within it.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.demo.demo import run_demo
    from cdc_platform.demo.pages import DemoOptions, DemoTools
    from cdc_platform.pipeline.checks.invariants import checks_of
    from cdc_platform.pipeline.on_demand.status import read_status
    from cdc_platform.resources import SPARK_IS_QUIET

    demo_options = DemoOptions(
        home=home.absolute(),
        seconds=options["seconds"],
        ui=not options["no_ui"],
        rate=options["rate"],
        partition_life_s=options["partition_life"],
        port=options["port"],
    )
    tools = DemoTools(
        load_settings,
        start_spark,
        run_checks=lambda pipeline, spark, wants_more: all_passed(
            run_checks(checks_of(pipeline.capabilities), pipeline, spark, wants_more)
        ),
        print_status=lambda pipeline: print_rendered(describe_status(read_status(pipeline))),
    )
    with stop_signals(SPARK_IS_QUIET.set) as stop:
        is_right = run_demo(demo_options, tools, stop.is_not_asked)
    if not is_right and not stop.is_not_asked():
        sys.exit(stop.exit_code)
    sys.exit(0 if is_right else 1)
