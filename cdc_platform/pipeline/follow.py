"""Ticks one after the other, in one warm process."""

import time
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from cdc_platform.model.records import RecordKind
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.tick import TickOutcome, run_tick

PAUSE_S = 0.1
"""How often a pause looks whether it should go on."""


def follow_source(
    pipeline: Pipeline, spark: SparkSession, wants_more: Callable[[], bool]
) -> Iterator[TickOutcome]:
    """Yield the outcome of each tick, until no more is wanted; rests after a tick that found no change.

    Raises:
        CdcError: a tick failed.
    """
    while wants_more():
        outcome = run_tick(pipeline, spark)
        yield outcome
        if not has_changes(outcome):
            pause(pipeline.settings.idle_interval_s, wants_more)


def has_changes(outcome: TickOutcome) -> bool:
    """Whether a tick has read any data change record."""
    return outcome.read.records.get(RecordKind.DATA_CHANGE, 0) > 0


def pause(duration_s: float, wants_more: Callable[[], bool]) -> None:
    """Wait, but not longer than more is wanted."""
    end = time.monotonic() + duration_s
    while (left := end - time.monotonic()) > 0 and wants_more():
        time.sleep(min(PAUSE_S, left))
