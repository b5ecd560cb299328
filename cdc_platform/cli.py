"""The command line: `cdc-platform demo`, `sync`, `status` and `check`; further ones are in commands/."""

import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import click

from cdc_platform.commands.common import DEFS, NAME
from cdc_platform.commands.common import examples as _examples
from cdc_platform.commands.common import start_spark as _start_spark
from cdc_platform.commands.cuts import cuts
from cdc_platform.commands.explain import explain
from cdc_platform.errors import CdcError
from cdc_platform.model.timestamps import to_rfc3339
from cdc_platform.simulator.command import simulate
from cdc_platform.stopping import stop_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.pipeline import Pipeline
    from cdc_platform.pipeline.status import Status, TableStatus
    from cdc_platform.pipeline.tick import TickOutcome
    from cdc_platform.pipeline.verdict import Check, Verdict

DEMO_HOME: Final = Path(".cdc_platform")

FIRST_STEPS: Final = """\b
See it work, with a bank of its own:
  cdc-platform demo
\b
Test a reader of change streams, yours or this one:
  cdc-platform simulate
\b
Declare a pipeline of yours, and run it:
  dg scaffold defs cdc_platform.components.spanner.SpannerPipeline my_bank
  cdc-platform sync examples/my_bank/defs.yaml --until-caught-up
  cdc-platform status examples/my_bank/defs.yaml
  cdc-platform check examples/my_bank/defs.yaml
\b
Ask how a row came to be, and which moments of the past can be read:
  cdc-platform explain examples/my_bank/defs.yaml accounts 42
  cdc-platform cuts examples/my_bank/defs.yaml
\b
Run it with Dagster's UI and the pipeline's sensor:
  CDC_PLATFORM_DEFS=examples/my_bank/defs.yaml dagster dev -w workspace.yaml
"""


class Commands(click.Group):
    """A group whose commands end with a message and not with a traceback where the platform knows why."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except CdcError as error:
            click.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
            ctx.exit(1)


@click.group(cls=Commands, epilog=FIRST_STEPS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("cdc_platform"), prog_name="cdc-platform")
def main() -> None:
    """Change data from Spanner as lakehouse tables that are right at every moment."""


for command in (simulate, explain, cuts):
    main.add_command(command)


@main.command(epilog=_examples("demo", "demo --seconds 90 --no-ui", "demo --server emulator"))
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEMO_HOME,
    show_default=True,
    help="Folder for the demo's lake, logs and Dagster instance; started again, the demo goes on from it.",
)
@click.option("--seconds", type=click.FloatRange(min=1), help="Stop by itself after this time, and check.")
@click.option("--no-ui", is_flag=True, help="Run the ticks in this process, without Dagster.")
@click.option(
    "--rate", type=click.FloatRange(min=1), default=250, show_default=True, help="Transfers a second."
)
@click.option(
    "--token-life",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Seconds for which a change stream partition lives at least.",
)
@click.option(
    "--port", type=int, default=3000, show_default=True, help="Port of the UI; a free one if taken."
)
@click.option(
    "--server",
    type=click.Choice(["simulator", "emulator"]),
    default="simulator",
    show_default=True,
    help="What plays Spanner; the emulator is Google's, or the one that SPANNER_EMULATOR_HOST names.",
)
def demo(home: Path, **options: Any) -> None:
    """Show the platform at work on a bank whose sum of balances never changes.

    Starts a simulated Spanner with a bank in it that books transfers all the time, and turns its change
    stream into tables of a lake. The stream's partitions live for seconds only: they split, merge and move.
    With `--server emulator` the bank is in Google's emulator, and books through the real client.

    With --seconds it ends with a proof: every check passes, and the sum of all balances is right at every
    cut that was published. The exit code is 0 only then.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.demo.demo import DemoOptions, DemoTools, run_demo
    from cdc_platform.demo.servers import DemoServer
    from cdc_platform.pipeline.status import read_status
    from cdc_platform.resources import SPARK_IS_QUIET

    wanted = DemoOptions(
        home=home.absolute(),
        seconds=options["seconds"],
        ui=not options["no_ui"],
        rate=options["rate"],
        token_life_s=options["token_life"],
        port=options["port"],
        server=DemoServer(options["server"]),
    )
    tools = DemoTools(
        load_settings,
        _start_spark,
        run_checks=lambda pipeline, spark: all_passed(run_checks(pipeline, spark)),
        describe_status=lambda pipeline: describe_status(read_status(pipeline)),
    )
    with stop_signals(SPARK_IS_QUIET.set) as stop:
        is_right = run_demo(wanted, tools, stop.is_not_asked)
    sys.exit(0 if is_right else 1)


@main.command(
    epilog=_examples(
        "sync examples/my_bank/defs.yaml",
        "sync examples/my_bank/defs.yaml --ticks 3",
        "sync examples/my_bank/defs.yaml --continuous",
    )
)
@DEFS
@NAME
@click.option(
    "--until-caught-up", is_flag=True, help="End when everything of now is published (the default)."
)
@click.option("--ticks", type=click.IntRange(min=1), help="End after so many ticks.")
@click.option("--continuous", is_flag=True, help="Go on until interrupted; ends after the tick at hand.")
def sync(defs: Path, name: str | None, until_caught_up: bool, ticks: int | None, continuous: bool) -> None:
    """Run the ticks of the pipeline that DEFS declares, in one warm process and without Dagster.

    A tick reads the change stream up to the source's present, orders and merges the changes, and publishes
    a cut. Whatever interrupts it, the next start goes on where it was; a second one at the same time is safe.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.pipeline.evolve import find_exclusions
    from cdc_platform.pipeline.follow import follow_source
    from cdc_platform.pipeline.pipeline import open_pipeline
    from cdc_platform.pipeline.trace import trace_lineage
    from cdc_platform.resources import SPARK_IS_QUIET

    if until_caught_up + continuous + (ticks is not None) > 1:
        raise click.UsageError("Choose one of --until-caught-up, --ticks and --continuous.")
    settings = load_settings(defs, name)
    pipeline = open_pipeline(settings)
    with stop_signals(SPARK_IS_QUIET.set) as stop:
        target_micros = pipeline.source.clock_micros()
        for finding in find_exclusions(pipeline):
            click.secho(f"Note: {finding}", fg="yellow", err=True)
        # What is wrong with the source shows before Spark takes its time to start.
        trace_lineage(pipeline)
        spark = _start_spark(settings)
        tell = _tell_error if continuous else None
        for done, outcome in enumerate(follow_source(pipeline, spark, stop.is_not_asked, tell), start=1):
            for line in (*describe_copies(outcome), describe_tick(outcome)):
                click.echo(line)
            if done == ticks or (ticks is None and not continuous and _is_caught_up(outcome, target_micros)):
                return
        stop.say("Stopped; the next start goes on from here.")
        sys.exit(0 if continuous else stop.exit_code)


def _tell_error(error: CdcError) -> None:
    click.secho(f"{type(error).__name__}: {error} Trying again.", fg="yellow", err=True)


def _is_caught_up(outcome: "TickOutcome", target_micros: int) -> bool:
    if outcome.copy.is_going_on:
        return False
    return outcome.cut is not None and outcome.cut.position_micros >= target_micros - 1


def describe_copies(outcome: "TickOutcome") -> list[str]:
    """Return a line for each initial copy that a tick went on with, and what it has to say of them."""
    return [
        *outcome.copy.notes,
        *(
            f"copy {copy.plan.table:<32} {len(copy.done):>6} of {len(copy.plan.pieces):<6} pieces  "
            f"rows {copy.rows:>12}  as of {to_rfc3339(copy.plan.position_micros)}"
            for copy in outcome.copy.copies
        ),
    ]


def describe_tick(outcome: "TickOutcome") -> str:
    """Return the line that tells of a tick."""
    watermark, lag_s = outcome.order.watermark_micros, outcome.lag_s
    return (
        f"tick {outcome.tick:<6} watermark {to_rfc3339(watermark) if watermark is not None else '-':<27} "
        f"lag {f'{lag_s:.1f}' if lag_s is not None else '-':>6} s  "
        f"records {sum(outcome.read.records.values()):>7}  changes {outcome.order.changes:>7}  "
        f"cut {outcome.cut.cut if outcome.cut is not None else '-':<6} {sum(outcome.seconds.values()):.1f} s"
    )


@main.command(
    epilog=_examples("status examples/my_bank/defs.yaml", "status examples/my_bank/defs.yaml --json")
)
@DEFS
@NAME
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def status(defs: Path, name: str | None, as_json: bool) -> None:
    """Tell where the pipeline that DEFS declares stands: watermark, partitions, tables, newest cut.

    It reads the lake's metadata only: no Spark is started, and the source may be down.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.pipeline.pipeline import open_existing
    from cdc_platform.pipeline.status import read_status

    found = read_status(open_existing(load_settings(defs, name)))
    click.echo(found.to_json() if as_json else describe_status(found))


def describe_status(found: "Status") -> str:
    """Return a status as lines for people."""
    told = found.to_dict()
    cut = f"{told['cut']} at {told['cut_position']}" if told["cut"] is not None else "none yet"
    partitions = (
        f"partitions  {len(found.live_partitions)} live, {len(found.waiting_partitions)} waiting, "
        f"{found.finished_partitions} finished"
    )
    lines = [
        f"pipeline    {found.pipeline}, tick {found.tick}",
        f"watermark   {told['watermark'] or 'none yet'}",
        f"lag         {found.lag_s if found.lag_s is not None else '-'} s",
        partitions,
        *(f"            {key}" for key in found.live_partitions),
        *(f"            {stuck.describe()}" for stuck in found.stuck_partitions),
        f"cut         {cut}",
        f"quarantine  {found.quarantined} records",
        "tables",
        *(_describe_table(name, table) for name, table in found.tables.items()),
        *(["notes"] if found.findings else []),
        *(f"            {finding}" for finding in found.findings),
        *(["copying"] if found.copies else []),
        *(
            f"            {name:<32} {copy.copied_rows:>12} rows  "
            f"{copy.copied_pieces} of {copy.pieces} pieces, as of {to_rfc3339(copy.position_micros)}"
            for name, copy in found.copies.items()
        ),
    ]
    return "\n".join(lines)


def _describe_table(name: str, table: "TableStatus") -> str:
    rows = table.rows if table.rows is not None else "-"
    return f"            {name:<32} {rows:>12} rows  snapshot {table.snapshot_id or '-'}"


@main.command(
    epilog=_examples(
        "check examples/my_bank/defs.yaml", "check examples/my_bank/defs.yaml --junit checks.xml"
    )
)
@DEFS
@NAME
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the results as JUnit XML, for CI."
)
def check(defs: Path, name: str | None, junit: Path | None) -> None:
    """Check the lake as it is, and the source: the same checks as Dagster's, over the whole log.

    Prints a line for each check; the exit code is 1 if one fails.
    """
    from cdc_platform.components.loading import load_settings
    from cdc_platform.pipeline.pipeline import open_existing
    from cdc_platform.resources import SPARK_IS_QUIET

    settings = load_settings(defs, name)
    pipeline = open_existing(settings)
    with stop_signals(SPARK_IS_QUIET.set) as stop:
        results = run_checks(pipeline, _start_spark(settings), stop.is_not_asked)
    if not stop.is_not_asked():
        sys.exit(stop.exit_code)
    if junit is not None:
        junit.write_text(as_junit(settings.name, results), encoding="utf-8")
    sys.exit(0 if all_passed(results) else 1)


def all_passed(results: "list[tuple[Check, Verdict, float]]") -> bool:
    """Return whether all checks passed, but for those that only warn."""
    return all(verdict.passed or promise.is_warning for promise, verdict, _ in results)


def run_checks(
    pipeline: "Pipeline", spark: "SparkSession", wants_more: Callable[[], bool] = lambda: True
) -> "list[tuple[Check, Verdict, float]]":
    """Run every check while more is wanted, print a line for each, and return it with verdict and seconds."""
    from cdc_platform.pipeline.invariants import CHECKS
    from cdc_platform.pipeline.verdict import EVERYTHING, Verdict

    results = []
    for promise in takewhile(lambda _: wants_more(), CHECKS):
        begun = time.monotonic()
        try:
            verdict = promise.run(pipeline, spark, EVERYTHING)
        except CdcError as error:
            verdict = Verdict(passed=False, summary=f"{type(error).__name__}: {error}", facts={})
        seconds = time.monotonic() - begun
        failed = ("warn  ", "yellow") if promise.is_warning else ("FAILED", "red")
        text, colour = ("ok    ", "green") if verdict.passed else failed
        word = click.style(text, fg=colour)
        click.echo(f"{word} {promise.name:<20} {verdict.summary} ({seconds:.1f} s)")
        results.append((promise, verdict, seconds))
    return results


def as_junit(pipeline: str, results: "list[tuple[Check, Verdict, float]]") -> str:
    """Return the results of checks as JUnit XML."""
    failures = sum(not (verdict.passed or promise.is_warning) for promise, verdict, _ in results)
    suite = ET.Element(
        "testsuite",
        {"name": f"cdc-platform check {pipeline}", "tests": str(len(results)), "failures": str(failures)},
    )
    for promise, verdict, seconds in results:
        attributes = {
            "classname": f"{pipeline}.{promise.asset}",
            "name": promise.name,
            "time": f"{seconds:.3f}",
        }
        case = ET.SubElement(suite, "testcase", attributes)
        if not verdict.passed and not promise.is_warning:
            ET.SubElement(case, "failure", {"message": verdict.summary}).text = promise.description
        facts = "\n".join(f"{name}={fact}" for name, fact in verdict.facts.items())
        told = [f"warning={verdict.summary}"] if promise.is_warning and not verdict.passed else []
        ET.SubElement(case, "system-out").text = "\n".join([*told, facts])
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


if __name__ == "__main__":
    main()
