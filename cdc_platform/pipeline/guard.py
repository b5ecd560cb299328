"""The checks of every tick, made now and then on what continuous running is about to publish."""

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from cdc_platform.errors import CheckFailed
from cdc_platform.lake.commits import read_mark
from cdc_platform.lake.cuts import newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.pipeline.invariants import checks_of
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.verdict import EVERYTHING, Check, Scope, Verdict

Heard = Callable[[Check, Verdict, int], None]
"""Told of each check that was made, what it found, and through which tick."""


class Guard:
    """Looks, every so often, at the part of the log that was not looked at before.

    What is published when it begins counts as looked at. What a run has left in the log unpublished is looked
    at by the first tick: it may be what a check has stopped.
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession, heard: Heard | None = None) -> None:
        self._pipeline, self._spark, self._heard = pipeline, spark, heard
        cut = newest_cut(pipeline.lake)
        self._passed = EVERYTHING if cut is None else Scope(cut.tick, cut.position_micros)
        is_ahead = read_mark(pipeline.lake.system_table(LOG)).tick > self._passed.after_tick
        self._due = time.monotonic() + (0.0 if is_ahead else pipeline.settings.check_every_s)

    def look(self) -> None:
        """Make the checks, if it is time.

        Raises:
            CheckFailed: one that does not only warn has failed; all have been made.
        """
        if time.monotonic() < self._due:
            return
        mark = read_mark(self._pipeline.lake.system_table(LOG))
        found = {check: self._make(check, mark.tick) for check in self._checks()}
        failed = [check for check, verdict in found.items() if not (verdict.passed or check.is_warning)]
        if failed:
            raise CheckFailed({check.name: found[check].summary for check in failed})
        self._passed = Scope(mark.tick, mark.position_micros)
        self._due = time.monotonic() + self._pipeline.settings.check_every_s

    def _checks(self) -> tuple[Check, ...]:
        return tuple(check for check in checks_of(self._pipeline.traits) if check.every_tick)

    def _make(self, check: Check, tick: int) -> Verdict:
        verdict = check.run(self._pipeline, self._spark, self._passed)
        if self._heard is not None:
            self._heard(check, verdict, tick)
        return verdict
