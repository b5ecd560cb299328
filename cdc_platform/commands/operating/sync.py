"""`cdc-platform sync`: cycles of a pipeline in one warm process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc_platform.commands.options import DEFS, EVERY_NAME, CommandOnDefs, examples
from cdc_platform.commands.pipelines import print_name, share_spark, start_spark, try_each
from cdc_platform.errors import CdcError
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.timestamps import MICROS_PER_S, to_rfc3339
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.printing.lines import join_lines, print_line, print_text
from cdc_platform.printing.progress_display import show_progress
from cdc_platform.stopping import stop_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.cycle import CycleOutcome
    from cdc_platform.pipeline.opened.pipeline import Pipeline
    from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

CAUGHT_UP: Final = "s of changes"
MAX_FAILURES: Final = 5
"""Attempts of a cycle in a run that has an end: another run or the network can block it for some seconds."""


@dataclass(frozen=True)
class CycleLimit:
    """End of a pipeline's cycles: after a number of them, never, or else once it has caught up."""

    cycles: int | None = None
    is_endless: bool = False


@click.command(
    cls=CommandOnDefs,
    epilog=examples(
        "sync examples/my_bank/defs.yaml",
        "sync examples/my_bank/defs.yaml --cycles 3",
        "sync examples/my_bank/defs.yaml --continuous",
    ),
)
@DEFS
@EVERY_NAME
@click.option(
    "--until-caught-up", is_flag=True, help="End once everything up to now is published (the default)."
)
@click.option("--cycles", type=click.IntRange(min=1), metavar="N", help="End after N cycles.")
@click.option("--continuous", is_flag=True, help="Run until interrupted; ends after the current cycle.")
def sync(defs: Path, name: str | None, until_caught_up: bool, cycles: int | None, continuous: bool) -> None:
    """Run cycles of the pipelines in DEFS, without Dagster.

    A cycle reads what the source has up to now, orders and merges the changes, and publishes a cut. After an
    interruption the next start continues where the last one stopped; running twice at a time is safe.
    Several pipelines run one after the other.

    Prints a line for each cycle: its number in the lake (a cycle with several reads takes several, and
    prints the last); the watermark; the lag, which is the moment when the newest cut was published minus its
    position; records and changes; records in quarantine, new in this cycle and open in total; the cut; the
    seconds that the cycle took.
    """
    from cdc_platform.components.loading import load_each
    from cdc_platform.lake.catalog.access import reaching
    from cdc_platform.resources import SPARK_IS_QUIET

    if until_caught_up + continuous + (cycles is not None) > 1:
        raise click.UsageError("Choose one of --until-caught-up, --cycles and --continuous.")
    all_settings = load_each(defs, name)
    if continuous and len(all_settings) > 1:
        names = ", ".join(settings.name for settings in all_settings)
        raise click.UsageError(f"--continuous runs one pipeline; choose it with --name: {names}.")
    with stop_signals(SPARK_IS_QUIET.set) as stop:

        def sync_one(settings: "PipelineSettings") -> None:
            print_name(settings.name, all_settings)
            with reaching(settings.lake):
                has_ended = run_cycles(settings, stop.is_not_asked, CycleLimit(cycles, continuous))
            if not has_ended:
                stop.say("Stopped; the next start resumes from here.")
                sys.exit(0 if continuous else stop.exit_code)

        synced_pipelines = try_each(share_spark(defs, all_settings), sync_one, stop.is_not_asked)
    sys.exit(0 if len(synced_pipelines) == len(all_settings) else 1)


def run_cycles(settings: "PipelineSettings", wants_more: Callable[[], bool], until: CycleLimit) -> bool:
    """Run cycles of a pipeline until their end, and return whether they reached it."""
    from cdc_platform.pipeline.opened.pipeline import open_pipeline
    from cdc_platform.pipeline.reading.trace import trace_lineage
    from cdc_platform.spark.session.running_tasks import watch_tasks

    pipeline = open_pipeline(settings)
    with show_progress(pipeline.progress), pipeline.progress.step("look at the source"):
        target_micros = pipeline.source.clock_micros()
        print_notes(pipeline)
        # Errors of the source and the settings show before Spark's slow start.
        trace_lineage(pipeline)
        _ = pipeline.tables
    session = start_spark(pipeline.settings)
    pipeline.progress.count_tasks = watch_tasks(session)
    with show_progress(pipeline.progress), _goal_step(pipeline, until, target_micros) as goal:
        has_ended = _follow(pipeline, session, wants_more, goal)
    _warn_of_quarantine(pipeline)
    return has_ended


def print_notes(pipeline: "Pipeline") -> None:
    """Print the parts of the source's tables that are not in the lake, such as generated columns."""
    from cdc_platform.pipeline.schema.schema_evolution import find_exclusions

    for finding in find_exclusions(pipeline):
        print_line((f"Note: {finding}", "yellow"), err=True)


@dataclass(frozen=True)
class _Goal:
    """Progress to the end of the cycles: the watermark moves from a position to the target, in a step."""

    until: CycleLimit
    target_micros: int
    from_micros: int | None
    step: Step | None

    @property
    def is_to_target(self) -> bool:
        """Whether the cycles end once the pipeline has caught up."""
        return self.until.cycles is None and not self.until.is_endless

    def advance(self, count: int, outcome: "CycleOutcome") -> None:
        """Count a cycle, or update how far the watermark has come."""
        watermark = outcome.order.watermark_micros
        if self.step is not None and self.until.cycles is not None:
            self.step.done = count
        elif self.step is not None and self.from_micros is not None and watermark is not None:
            self.step.done = (min(watermark, self.target_micros) - self.from_micros) // MICROS_PER_S


@contextmanager
def _goal_step(pipeline: "Pipeline", until: CycleLimit, target_micros: int) -> Iterator[_Goal]:
    """Yield the progress, shown as the outermost step unless the cycles have no end."""
    from cdc_platform.model.stream.lineage import watermark_micros
    from cdc_platform.pipeline.reading.trace import trace_lineage

    watermark = watermark_micros(trace_lineage(pipeline))
    # The positions of files and topics do not show how much of them is left.
    is_known = watermark is not None and not pipeline.capabilities.delivers_events
    from_micros = watermark if is_known else None
    if until.is_endless:
        yield _Goal(until, target_micros, from_micros, None)
    elif until.cycles is not None:
        with pipeline.progress.step("cycles", "cycles", until.cycles) as step:
            yield _Goal(until, target_micros, from_micros, step)
    else:
        seconds = (target_micros - from_micros) // MICROS_PER_S if from_micros is not None else 0
        unit = (CAUGHT_UP, seconds) if seconds > 0 else ("", None)
        with pipeline.progress.step("catch up", *unit) as step:
            yield _Goal(until, target_micros, from_micros, step)


def _follow(pipeline: "Pipeline", spark: "SparkSession", wants_more: Callable[[], bool], goal: _Goal) -> bool:
    from cdc_platform.pipeline.cycle_loop import follow_source

    until = goal.until
    max_failures = None if until.is_endless else MAX_FAILURES
    outcomes = follow_source(pipeline, spark, wants_more, _as_fault, max_failures)
    delivers_events = pipeline.capabilities.delivers_events
    is_level = partial(_is_caught_up, target_micros=goal.target_micros, delivers_events=delivers_events)
    for count, outcome in enumerate(outcomes, start=1):
        goal.advance(count, outcome)
        if count == 1 or until.cycles is not None or has_done_something(outcome):
            turn = (count, until.cycles) if until.cycles is not None else None
            line = describe_cycle(outcome, _count_open(pipeline), turn)
            print_text(join_lines((*describe_copies(outcome), line)))
        if count == until.cycles or (goal.is_to_target and is_level(outcome)):
            return True
    return False


def _count_open(pipeline: "Pipeline") -> int | None:
    """Return the number of records in quarantine; None if the lake does not answer: cycles continue."""
    from cdc_platform.lake.catalog.access import reaching
    from cdc_platform.lake.state.quarantine import count_quarantined_records

    try:
        with reaching(pipeline.settings.lake):
            return count_quarantined_records(pipeline.lake)
    except CdcError as error:
        if not error.retryable:
            raise
        return None


def _warn_of_quarantine(pipeline: "Pipeline") -> None:
    from cdc_platform.lake.state.quarantine import count_quarantined_records

    count = count_quarantined_records(pipeline.lake)
    if count:
        text = (
            f"Warning: records of `{pipeline.name}` in quarantine: {count:,}. Its tables lack their changes. "
            "`cdc-platform quarantine list` shows the reasons."
        )
        print_text(text, "yellow", err=True)


def _as_fault(error: CdcError) -> None:
    from cdc_platform.pipeline.cycle_loop import describe_retry

    print_text(describe_retry(error), "yellow", err=True)


def _is_caught_up(outcome: "CycleOutcome", target_micros: int, *, delivers_events: bool) -> bool:
    if outcome.copy.is_pending:
        return False
    if delivers_events:
        from cdc_platform.pipeline.cycle_loop import is_idle

        # A cycle that has tried all unreadable files has nothing left to do.
        has_news = outcome.read.records.get(RecordKind.CHILD_PARTITIONS, 0) > 0
        return not outcome.read.committed or (is_idle(outcome) and not has_news)
    return outcome.cut is not None and outcome.cut.position_micros >= target_micros - 1


def has_done_something(outcome: "CycleOutcome") -> bool:
    """Return whether a cycle is worth a line: with files and topics, most cycles find nothing to read."""
    entries = outcome.order.changes + outcome.order.quarantined
    return outcome.read.committed or bool(outcome.copy.copies) or entries > 0


def describe_copies(outcome: "CycleOutcome") -> list[str]:
    """Return a line for each initial copy that a cycle continued, and its notes."""
    return [
        *outcome.copy.notes,
        *(
            f"copy {copy.plan.table:<32} {len(copy.done):>6} of {len(copy.plan.chunks):<6} chunks  "
            f"rows {copy.rows:>12,}  as of {to_rfc3339(copy.plan.position_micros)}"
            for copy in outcome.copy.copies
        ),
    ]


def describe_cycle(
    outcome: "CycleOutcome", open_records: int | None, turn: tuple[int, int] | None = None
) -> str:
    """Return the line of a cycle.

    Args:
        outcome: result of the cycle.
        open_records: number of open records in quarantine now; None if unknown.
        turn: its position among the cycles of this run, and the number of requested cycles.
    """
    watermark, lag_s = outcome.order.watermark_micros, outcome.lag_s
    of = f" ({turn[0]} of {turn[1]})" if turn is not None else ""
    open_text = f"{open_records:,}" if open_records is not None else "-"
    return (
        f"cycle {f'{outcome.cycle}{of}':<6} "
        f"watermark {to_rfc3339(watermark) if watermark is not None else '-':<27} "
        f"lag {f'{lag_s:.1f}' if lag_s is not None else '-':>6} s  "
        f"records {sum(outcome.read.records.values()):>7,}  changes {outcome.order.changes:>7,}  "
        f"quarantine {outcome.order.quarantined:,} new, {open_text} open  "
        f"cut {outcome.cut.cut if outcome.cut is not None else '-':<6} {sum(outcome.seconds.values()):.1f} s"
    )
