"""The checks of every tick, made now and then while ticks follow each other."""

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from cdc_platform.errors import CheckFailed
from cdc_platform.lake.commits import read_mark
from cdc_platform.lake.cuts import cuts_since_moment, newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.pipeline.invariants import checks_of
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.verdict import EVERYTHING, Check, Scope, Verdict, checking

Heard = Callable[[Check, Verdict, int], None]
"""Told of each check that was made, what it found, and through which tick."""


class Guard:
    """Looks, every so often, at the part of the log that no look has passed.

    The first look is due at once. It begins where the last one of the run before may have ended, so that what
    that one did not look at, or what has stopped it, is looked at.
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession, heard: Heard | None = None) -> None:
        self._pipeline, self._spark, self._heard = pipeline, spark, heard
        self._every_s = pipeline.settings.check_every_s
        self._passed = EVERYTHING if self._every_s is None else _passed_before(pipeline, self._every_s)
        self._due = time.monotonic()

    def look(self) -> None:
        """Make the checks, if it is time.

        Raises:
            CheckFailed: one that does not only warn has failed; all have been made.
        """
        if self._every_s is None or time.monotonic() < self._due:
            return
        mark = read_mark(self._pipeline.lake.system_table(LOG))
        has_news = mark.tick > self._passed.after_tick
        with checking(self._pipeline, self._spark):
            found = {check: self._make(check, mark.tick) for check in self._checks(has_news=has_news)}
        failed = [check for check, verdict in found.items() if not (verdict.passed or check.is_warning)]
        if failed:
            raise CheckFailed({check.name: found[check].summary for check in failed})
        self._passed = Scope(mark.tick, mark.position_micros)
        self._due = time.monotonic() + self._every_s

    def _checks(self, *, has_news: bool) -> tuple[Check, ...]:
        checks = (check for check in checks_of(self._pipeline.traits) if check.every_tick)
        return tuple(check for check in checks if has_news or check.asset != LOG)

    def _make(self, check: Check, tick: int) -> Verdict:
        verdict = check.run(self._pipeline, self._spark, self._passed)
        if self._heard is not None:
            self._heard(check, verdict, tick)
        return verdict


def _passed_before(pipeline: Pipeline, every_s: float) -> Scope:
    """Return what a look of the run before has certainly passed.

    Of two cuts in a row, the earlier one was published before the next look was due: else that look would
    have come between them.
    """
    newest = newest_cut(pipeline.lake)
    if newest is None:
        return EVERYTHING
    earlier = cuts_since_moment(pipeline.lake, newest.published_micros - 1)[0]
    if earlier.cut == newest.cut:
        return EVERYTHING
    moment = earlier.published_micros - int(every_s * 1_000_000)
    passed = cuts_since_moment(pipeline.lake, moment)[0]
    return Scope(passed.tick, passed.position_micros) if passed.published_micros <= moment else EVERYTHING
