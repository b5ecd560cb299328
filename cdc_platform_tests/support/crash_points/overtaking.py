"""A process that pauses, after an effect or before a look at the catalog, while another one goes ahead."""

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.reading.read import read_generations
from cdc_platform_tests.support.crash_points.points import POINTS, Effect, Pause, describe
from cdc_platform_tests.support.crash_points.runs import (
    PointNotReached,
    Recovery,
    Trial,
    reopened,
)
from cdc_platform_tests.support.crash_points.series import Extent, Series, run_places

TRIES: Final = 5
"""So many tries of a cycle are enough for a process whose other one pauses, or has been overtaken."""


class Lead(Enum):
    """How far another process goes ahead during a pause."""

    PUBLISHED = "published"
    """It publishes three times, and has nothing left to do."""
    ORDERED = "ordered"
    """Then it extends the log once more, and pauses itself before it merges anything."""


@dataclass
class Overtaker:
    """The other process, and what is wrong with what it found.

    Args:
        trial: of the process that pauses.
        lead: how far the other one goes.
        faults: what was wrong as soon as it had caught up.
        has_run: whether the pause was reached.
    """

    trial: Trial
    lead: Lead = Lead.PUBLISHED
    faults: list[str] = field(default_factory=list)
    has_run: bool = False

    def overtake(self) -> None:
        """Catch up, receive more input, catch up again, and look at the tables."""
        self.has_run = self.trial.has_sent = True
        try:
            with reopened(self.trial.settings) as pipeline:
                for _ in range(2):
                    persist(self.trial, pipeline)
                    self.trial.workload.send()
                self.trial.workload.finish()
                persist(self.trial, pipeline)
                self.faults += (f"the other process: {fault}" for fault in self.trial.faults(pipeline))
                if self.lead is Lead.ORDERED:
                    self.trial.workload.send()
                    self.trial.workload.finish()
                    read_generations(pipeline, self.trial.spark)
                    order_changes(pipeline, self.trial.spark)
        except Exception as error:  # noqa: BLE001  the process that pauses is not to receive it
            self.faults.append(f"the other process: {type(error).__name__}: {error}")
        # Its errors refer to the frames of the look that it interrupts: until they are collected, the look's
        # read stays open and keeps the catalog locked.
        gc.collect()


def persist(trial: Trial, pipeline: Pipeline) -> None:
    """Catch up as a process does that continues after errors that may pass by themselves."""
    for remaining_tries in reversed(range(TRIES)):
        try:
            with reaching(pipeline.settings.lake):
                revert_lost_commits(pipeline.lake)
                return trial.recover(pipeline, trial.spark)
        except CdcError as error:
            if not (error.retryable and remaining_tries):
                raise
    return None


def list_places(trial: Trial) -> tuple[Effect, ...]:
    """Return the effects of a whole run, and its looks at the catalog."""
    trial.lake.restore(trial.begun)
    with POINTS.counted(has_looks=True), reopened(trial.settings) as pipeline:
        trial.act(pipeline, trial.spark)
        return tuple(POINTS.effects)


def outrun(
    trial: Trial, is_at: Callable[[Effect], bool], *, lead: Lead = Lead.PUBLISHED, has_checks: bool = True
) -> Recovery:
    """Let a run pause at its first suitable place while another process goes ahead, and return the outcome.

    What is published must be right once its process has caught up, and, unless the other process has left
    something to merge, as soon as the run has ended.

    Raises:
        PointNotReached: the run had no such place.
        CdcError: it ended before the place by an error, for which no pause was the reason.
    """
    trial.lake.restore(trial.begun)
    overtaker, faults = Overtaker(trial, lead), list[str]()
    ended: CdcError | None = None
    with reopened(trial.settings) as pipeline:
        with POINTS.counted(pause=Pause(is_at, overtaker.overtake), has_looks=True):
            try:
                with reaching(trial.settings.lake):
                    trial.act(pipeline, trial.spark)
            except CdcError as error:
                ended = error
                if not error.retryable:
                    faults.append(f"the run ended by {type(error).__name__}: {error}")
            if not overtaker.has_run:
                raise ended or PointNotReached(f"none of {len(POINTS.effects)} places")
        # What is there now must be deleted at the end.
        trial.lake.keep()
        if lead is Lead.PUBLISHED:
            # A reader of its own: the process that was overtaken does not know yet what the schema is now.
            with reopened(trial.settings) as reader:
                faults += (f"after the run: {fault}" for fault in trial.faults(reader))
        begun_s = time.monotonic()
        persist(trial, pipeline)
        recovery = trial.judge(time.monotonic() - begun_s, has_checks=has_checks)
    return Recovery(recovery.seconds, recovery.orphans, (*overtaker.faults, *faults, *recovery.faults))


def run_overtaking(trial: Trial, lead: Lead, extent: Extent, chance: random.Random) -> Series:
    """Let a run pause at each of its places in turn, and return the outcome."""
    return run_places(
        trial,
        list_places(trial),
        lambda place, has_checks: outrun(
            trial, lambda effect: effect.number == place.number, lead=lead, has_checks=has_checks
        ),
        # Each pause leaves more input: a later run may have another place at a number than the listed one.
        lambda place: f"paused at {describe(POINTS.effects[place.number - 1], trial.lake.folder)}",
        extent,
        chance,
    )
