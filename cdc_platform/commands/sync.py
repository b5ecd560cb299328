"""`cdc-platform sync`: the ticks of a pipeline in one warm process."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_platform.commands.common import DEFS, NAME, examples, start_spark
from cdc_platform.errors import CdcError
from cdc_platform.model.records import RecordKind
from cdc_platform.model.timestamps import to_rfc3339
from cdc_platform.stopping import stop_signals

if TYPE_CHECKING:
    from cdc_platform.pipeline.settings import PipelineSettings
    from cdc_platform.pipeline.tick import TickOutcome

MOST_FAILURES: Final = 5
"""So often a tick is tried where an end is wanted: another run, or the network, is in the way for seconds."""


@click.command(
    epilog=examples(
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

    A tick reads what the source has up to now, orders and merges the changes, and publishes a cut. Whatever
    interrupts it, the next start goes on where it was; a second one at the same time is safe. Where DEFS
    declares several pipelines and --name chooses none, they run one after the other.

    Prints a line for each tick. Its lag is that of the newest cut, beside the source's clock when the tick
    read it; the clock of files and topics is this machine's.
    """
    from cdc_platform.components.loading import load_each
    from cdc_platform.resources import SPARK_IS_QUIET

    if until_caught_up + continuous + (ticks is not None) > 1:
        raise click.UsageError("Choose one of --until-caught-up, --ticks and --continuous.")
    chosen = load_each(defs, name)
    if continuous and len(chosen) > 1:
        names = ", ".join(settings.name for settings in chosen)
        raise click.UsageError(f"--continuous runs one pipeline; choose it with --name: {names}.")
    with stop_signals(SPARK_IS_QUIET.set) as stop:
        for settings in chosen:
            if len(chosen) > 1:
                click.echo(f"pipeline {settings.name}")
            if not run_ticks(settings, stop.is_not_asked, ticks, is_endless=continuous):
                stop.say("Stopped; the next start goes on from here.")
                sys.exit(0 if continuous else stop.exit_code)


def run_ticks(
    settings: "PipelineSettings", wants_more: Callable[[], bool], ticks: int | None, *, is_endless: bool
) -> bool:
    """Run so many ticks of a pipeline, else until it has caught up; return whether it came to that."""
    from cdc_platform.pipeline.evolve import find_exclusions
    from cdc_platform.pipeline.follow import follow_source
    from cdc_platform.pipeline.pipeline import open_pipeline
    from cdc_platform.pipeline.trace import trace_lineage

    pipeline = open_pipeline(settings)
    target_micros = pipeline.source.clock_micros()
    for finding in find_exclusions(pipeline):
        click.secho(f"Note: {finding}", fg="yellow", err=True)
    # What is wrong with the source or the settings shows before Spark takes its time to start.
    trace_lineage(pipeline)
    _ = pipeline.tables
    most_failures = None if is_endless else MOST_FAILURES
    outcomes = follow_source(pipeline, start_spark(settings), wants_more, _tell_error, most_failures)
    is_to_end = ticks is None and not is_endless
    is_level = partial(
        _is_caught_up, target_micros=target_micros, hands_out_events=pipeline.traits.hands_out_events
    )
    for done, outcome in enumerate(outcomes, start=1):
        if done == 1 or has_done_something(outcome):
            for line in (*describe_copies(outcome), describe_tick(outcome)):
                click.echo(line)
        if done == ticks or (is_to_end and is_level(outcome)):
            return True
    return False


def _tell_error(error: CdcError) -> None:
    click.secho(f"{type(error).__name__}: {error} Trying again.", fg="yellow", err=True)


def _is_caught_up(outcome: "TickOutcome", target_micros: int, *, hands_out_events: bool) -> bool:
    if outcome.copy.is_going_on:
        return False
    if hands_out_events:
        from cdc_platform.pipeline.follow import is_idle

        # A tick that has tried files which cannot be read has done what there is to do.
        has_news = outcome.read.records.get(RecordKind.CHILD_PARTITIONS, 0) > 0
        return not outcome.read.committed or (is_idle(outcome) and not has_news)
    return outcome.cut is not None and outcome.cut.position_micros >= target_micros - 1


def has_done_something(outcome: "TickOutcome") -> bool:
    """Whether a tick is worth a line: with files and topics, most looks find nothing to read."""
    return outcome.read.committed or bool(outcome.copy.copies) or outcome.order.changes > 0


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
