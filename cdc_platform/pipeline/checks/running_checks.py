"""Periodic checks while cycles run."""

import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import cuts_since_moment, newest_cut
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.pipeline.checks.check_result import (
    EVERYTHING,
    Check,
    CheckResult,
    Scope,
    checking,
    raise_failures,
)
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.checks.stored_results import store_results
from cdc_platform.pipeline.opened.pipeline import Pipeline

CheckListener = Callable[[Check, CheckResult, int], None]
"""Receives each finished check, its result, and the cycle up to which it was made."""

UNCHANGED_AFTER_S: Final = 300.0
"""A check of cycles runs each minute; its result is stored when it changes, and at least so often."""


class CheckRunner:
    """Runs each check periodically on the part of the log that it has not yet passed.

    The first round, with all checks, is due at once. It begins where the last round of the previous run may
    have ended, so it repeats whatever that round skipped or failed on. After that the checks take turns, so
    that no cycle waits for all of them. ``every_s`` overrides the pipeline's `check_every_s`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        listener: CheckListener | None = None,
        every_s: float | None = None,
    ) -> None:
        regular_s = pipeline.settings.check_every_s
        self._pipeline, self._spark, self._listener = pipeline, spark, listener
        self._every_s = regular_s if every_s is None else every_s
        fails = pipeline.settings.fail_on_quarantine
        applicable = checks_of(pipeline.capabilities, fail_on_quarantine=fails)
        checks = tuple(check for check in applicable if check.every_cycle)
        before = EVERYTHING if regular_s is None else passed_before(pipeline, regular_s)
        self._passed = dict.fromkeys(checks, before)
        self._due = dict.fromkeys(checks, time.monotonic())

    def run_due(self) -> None:
        """Run the checks that are due.

        Raises:
            CheckFailed: a blocking check has failed; all due checks have run.
        """
        due_checks = [check for check, moment in self._due.items() if moment <= time.monotonic()]
        if self._every_s is None or not due_checks:
            return
        mark = read_mark(self._pipeline.lake.system_table(LOG))
        news = [
            check
            for check in due_checks
            if check.asset != LOG or mark.cycle > self._passed[check].after_cycle
        ]
        results: dict[Check, CheckResult] = {}
        try:
            with checking(self._pipeline, self._spark, news, total=len(news)) as step:
                make = step.counting(self._make)
                for check in news:
                    results[check] = make(check, mark.cycle)
        finally:
            store_results(self._pipeline, results, unchanged_after_s=UNCHANGED_AFTER_S)
        raise_failures(results)
        for turn, check in enumerate(due_checks, 1):
            self._passed[check] = Scope(mark.cycle, mark.position_micros)
            self._due[check] = time.monotonic() + self._every_s * turn / len(due_checks)

    def _make(self, check: Check, cycle: int) -> CheckResult:
        with self._pipeline.progress.step(f"check {check.name}"):
            result = check.examine(self._pipeline, self._spark, self._passed[check])
        if self._listener is not None:
            self._listener(check, result, cycle)
        return result


def passed_before(pipeline: Pipeline, every_s: float) -> Scope:
    """Return the scope that a round of the previous run has certainly passed.

    Of two successive cuts, the earlier one was published before the next round was due; otherwise that round
    would have run between them.
    """
    newest = newest_cut(pipeline.lake)
    if newest is None:
        return EVERYTHING
    earlier = cuts_since_moment(pipeline.lake, newest.published_micros - 1)[0]
    if earlier.cut == newest.cut:
        return EVERYTHING
    moment = earlier.published_micros - int(every_s * MICROS_PER_S)
    cut = cuts_since_moment(pipeline.lake, moment)[0]
    return Scope(cut.cycle, cut.position_micros) if cut.published_micros <= moment else EVERYTHING
