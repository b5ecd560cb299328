"""A process that pauses after an effect, longer than another one takes to read, publish and read again."""

import random
import time
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.state.lost_commits import take_back_lost
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.support.crash_points.failures import list_effects
from cdc_platform_tests.support.crash_points.points import POINTS, Pause, describe
from cdc_platform_tests.support.crash_points.runs import (
    PointNotReached,
    Recovery,
    Trial,
    reopened,
)
from cdc_platform_tests.support.crash_points.series import Extent, Series, run_places

TRIES: Final = 5
"""So many tries of a cycle are enough for a process whose other one pauses, or has been overtaken."""


@dataclass
class Overtaker:
    """The other process, and what is wrong with what it found.

    Args:
        trial: of the process that pauses.
        faults: what was wrong as soon as it had caught up.
        has_run: whether the pause was reached.
    """

    trial: Trial
    faults: list[str] = field(default_factory=list)
    has_run: bool = False

    def overtake(self) -> None:
        """Catch up, receive more input, catch up again, and look at the tables."""
        self.has_run = True
        try:
            with reopened(self.trial.settings) as pipeline:
                for _ in range(2):
                    persist(self.trial, pipeline)
                    self.trial.workload.send()
                self.trial.workload.finish()
                persist(self.trial, pipeline)
                self.faults += (f"the other process: {fault}" for fault in self.trial.faults(pipeline))
        except Exception as error:  # noqa: BLE001  the process that pauses is not to receive it
            self.faults.append(f"the other process: {type(error).__name__}: {error}")


def persist(trial: Trial, pipeline: Pipeline) -> None:
    """Catch up as a process does that continues after errors that may pass by themselves."""
    for left in reversed(range(TRIES)):
        try:
            with reaching(pipeline.settings.lake):
                take_back_lost(pipeline.lake)
                return trial.recover(pipeline, trial.spark)
        except CdcError as error:
            if not (error.retryable and left):
                raise
    return None


def outrun(trial: Trial, number: int, *, has_checks: bool = True) -> Recovery:
    """Let a run pause after an effect while another process goes ahead, and return the outcome.

    What is published must be right as soon as the run has ended, and once its process has caught up.

    Raises:
        PointNotReached: the run had fewer effects.
        CdcError: it ended before the effect by an error, for which no pause was the reason.
    """
    trial.lake.restore(trial.begun)
    overtaker, faults = Overtaker(trial), list[str]()
    ended: CdcError | None = None
    with reopened(trial.settings) as pipeline:
        with POINTS.counted(pause=Pause(number, overtaker.overtake)):
            try:
                with reaching(trial.settings.lake):
                    trial.act(pipeline, trial.spark)
            except CdcError as error:
                ended = error
                if not error.retryable:
                    faults.append(f"the run ended by {type(error).__name__}: {error}")
            if not overtaker.has_run:
                raise ended or PointNotReached(f"effect {number} of {len(POINTS.effects)}")
        # What is there now must be deleted at the end.
        trial.lake.keep()
        # A reader of its own: the process that was overtaken does not know yet what the schema is now.
        with reopened(trial.settings) as reader:
            faults += (f"after the run: {fault}" for fault in trial.faults(reader))
        begun = time.monotonic()
        persist(trial, pipeline)
        recovery = trial.judge(time.monotonic() - begun, has_checks=has_checks)
    return Recovery(recovery.seconds, recovery.orphans, (*overtaker.faults, *faults, *recovery.faults))


def run_overtaking(trial: Trial, extent: Extent, chance: random.Random) -> Series:
    """Let a run pause after each of its effects in turn, and return the outcome."""
    return run_places(
        trial,
        [effect.number for effect in list_effects(trial)],
        lambda number, has_checks: outrun(trial, number, has_checks=has_checks),
        # Each pause leaves more input: a later run may have another effect at a number than the listed one.
        lambda number: f"paused after {describe(POINTS.effects[number - 1], trial.lake.folder)}",
        extent,
        chance,
    )
