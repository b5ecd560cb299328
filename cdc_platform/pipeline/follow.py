"""Cycles one after the other, in one warm process."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.errors import CdcError, SourceError
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.checks.running_checks import Guard, Heard
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.cycle import CycleOutcome, finish_cycle, run_cycle

PAUSE_S: Final = 0.1
"""How often a pause looks whether it should go on."""
LONGEST_BACKOFF_S: Final = 30.0


def follow_source(
    pipeline: Pipeline,
    spark: SparkSession,
    wants_more: Callable[[], bool],
    tell: Callable[[CdcError], None] | None = None,
    most_failures: int | None = None,
    heard: Heard | None = None,
) -> Iterator[CycleOutcome]:
    """Yield the outcome of each cycle, until no more is wanted; rests after a cycle that found no change.

    Whoever starts this may have mended what kept files from being read: the first cycle tries them at once.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        wants_more: asked before each cycle and during each rest.
        tell: told of errors that may pass by themselves, after which the cycle is tried again, and of what
            an initial copy has met, which does not stop the other tables; without it every error ends
            the cycles.
        most_failures: so many tries of a cycle may fail, and so many cycles in a row may leave the watermark
            where it is since a partition cannot be read; None means any number.
        heard: told of the checks that are made on the way.

    Raises:
        CheckFailed: the log has failed a check; nothing more of it is published.
        CdcError: a cycle failed, and trying again would not help, was not asked for, or did not help.
    """
    failures, is_first = 0, True
    position_micros: int | None = None
    guard: Guard | None = None
    while wants_more():
        try:
            if guard is None:
                guard = Guard(pipeline, spark, heard)
                # Before anything is added to what may have stopped the run before.
                guard.look()
                finish_cycle(pipeline, spark)
            outcome = run_cycle(pipeline, spark, ends_pauses=is_first, guard=guard)
        except CdcError as error:
            if tell is None or not error.retryable:
                raise
            failures += 1
            if failures == most_failures:
                raise
            tell(error)
            pause(min(2.0**failures, LONGEST_BACKOFF_S), wants_more)
            continue
        held_by = _held_by(outcome, position_micros)
        failures, is_first = 0 if held_by is None else failures + 1, False
        position_micros = outcome.order.watermark_micros
        yield outcome
        if held_by is not None and failures == most_failures:
            raise held_by
        if outcome.copy.failure is not None:
            if tell is None:
                raise outcome.copy.failure
            tell(outcome.copy.failure)
        if is_idle(outcome) or outcome.copy.failure is not None:
            pause(pipeline.settings.idle_interval_s, wants_more)


def _held_by(outcome: CycleOutcome, before_micros: int | None) -> SourceError | None:
    """Return why a partition could not be read, where that leaves the watermark as it was before."""
    is_held = outcome.order.watermark_micros == before_micros
    return next(iter(outcome.read.failures), None) if is_held else None


def is_idle(outcome: CycleOutcome) -> bool:
    """Whether a cycle has read no data change record, and there was nothing more to read or copy then."""
    if not outcome.read.committed:
        return not outcome.copy.is_going_on
    watermark = outcome.order.watermark_micros
    is_level = watermark is not None and watermark >= outcome.read.clock_micros - 1
    return (
        is_level and not outcome.copy.is_going_on and not outcome.read.records.get(RecordKind.DATA_CHANGE, 0)
    )


def pause(duration_s: float, wants_more: Callable[[], bool]) -> None:
    """Wait, but not longer than more is wanted."""
    end = time.monotonic() + duration_s
    while (left := end - time.monotonic()) > 0 and wants_more():
        time.sleep(min(PAUSE_S, left))
