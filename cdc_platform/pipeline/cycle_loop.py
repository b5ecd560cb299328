"""Cycles one after the other, in one warm process."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.checks.running_checks import CheckListener, CheckRunner
from cdc_platform.pipeline.cycle import CycleOutcome, finish_cycle, run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.statuses import backoff_s

PAUSE_S: Final = 0.1
"""Interval at which a pause checks whether it should continue."""
BACKOFF_INITIAL_S: Final = 2.0
BACKOFF_MAX_S: Final = 30.0

ErrorListener = Callable[[CdcError], None]
"""Receives each error after which a retry may succeed."""


@dataclass
class _Failures:
    """Tries of a cycle that failed, or cycles that moved nothing, one after the other."""

    listener: ErrorListener | None
    limit: int | None
    count: int = 0
    position_micros: int | None = None

    def add(self, error: CdcError) -> None:
        """Count a failed try, or raise its error where no other try is wanted or would help."""
        if self.listener is None or not error.retryable:
            raise error
        self.count += 1
        if self.count == self.limit:
            raise error
        self.listener(error)

    def count_outcome(self, outcome: CycleOutcome) -> None:
        """Reset the count after a cycle, or continue it if an unreadable partition holds the cycle back.

        Raises:
            CdcError: there were too many such cycles, or a copy failed and nobody listens.
        """
        is_kept_back = outcome.order.watermark_micros == self.position_micros
        obstacle = next(iter(outcome.read.failures), None) if is_kept_back else None
        self.count = 0 if obstacle is None else self.count + 1
        self.position_micros = outcome.order.watermark_micros
        if obstacle is not None and self.count == self.limit:
            raise obstacle
        if outcome.copy.failure is not None:
            if self.listener is None:
                raise outcome.copy.failure
            self.listener(outcome.copy.failure)


def follow_source(
    pipeline: Pipeline,
    spark: SparkSession,
    wants_more: Callable[[], bool],
    error_listener: ErrorListener | None = None,
    max_failures: int | None = None,
    check_listener: CheckListener | None = None,
) -> Iterator[CycleOutcome]:
    """Yield the outcome of each cycle, until no more is wanted; rests after a cycle that found no change.

    The first cycle reads files whose last read failed without waiting: they may have been repaired before.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        wants_more: asked before each cycle and during each rest.
        error_listener: receives errors after which the cycle is tried again, and the failure of an initial
            copy, which does not stop the other tables; without it every error ends the cycles.
        max_failures: maximum number of failed attempts at a cycle, and of successive cycles without progress
            of the watermark because a partition cannot be read; None means no limit.
        check_listener: receives the results of the checks between cycles.

    Raises:
        CheckFailed: the log has failed a check; nothing more of it is published.
        CdcError: a cycle failed, and trying again would not help, was not asked for, or did not help.
    """
    failures, is_first, has_failed = _Failures(error_listener, max_failures), True, True
    checks: CheckRunner | None = None
    while wants_more():
        try:
            with reaching(pipeline.settings.lake):
                if has_failed:
                    revert_lost_commits(pipeline.lake)
                if checks is None:
                    checks = CheckRunner(pipeline, spark, check_listener)
                    # Before anything is added to what may have stopped the run before.
                    checks.run_due()
                    finish_cycle(pipeline, spark)
                outcome = run_cycle(pipeline, spark, ends_pauses=is_first, checks=checks)
        except CdcError as error:
            has_failed = True
            failures.add(error)
            pause(backoff_s(failures.count, BACKOFF_INITIAL_S, BACKOFF_MAX_S), wants_more)
            continue
        is_first = has_failed = False
        yield outcome
        failures.count_outcome(outcome)
        if is_idle(outcome) or outcome.copy.failure is not None:
            with pipeline.progress.rest():
                pause(pipeline.settings.idle_interval_s, wants_more)


def describe_retry(error: CdcError) -> str:
    """Return the line for an error after which the cycle is tried again."""
    return f"{type(error).__name__}: {error} Trying again."


def is_idle(outcome: CycleOutcome) -> bool:
    """Return whether a cycle read no data change record, and had nothing more to read or copy."""
    if not outcome.read.committed:
        return not outcome.copy.is_pending
    watermark = outcome.order.watermark_micros
    is_level = watermark is not None and watermark >= outcome.read.clock_micros - 1
    return (
        is_level and not outcome.copy.is_pending and not outcome.read.records.get(RecordKind.DATA_CHANGE, 0)
    )


def pause(duration_s: float, wants_more: Callable[[], bool]) -> None:
    """Wait, but not longer than more is wanted."""
    end = time.monotonic() + duration_s
    while (remaining_s := end - time.monotonic()) > 0 and wants_more():
        time.sleep(min(PAUSE_S, remaining_s))
