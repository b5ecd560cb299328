"""A day of a source in fast motion: a minute for each cycle, with faults, deaths and a full disk."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle as endless
from typing import Final, Protocol

from pyspark.sql import SparkSession

from cdc_platform.errors import CdcError
from cdc_platform.lake.state.cuts import cut_positions
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings, PipelineSettings
from cdc_platform_tests.support.crash_points.points import POINTS, Death, Failure, Moment, ProcessDeath
from cdc_platform_tests.support.crash_points.runs import count_doubled, wait_for_spark
from cdc_platform_tests.support.footprints.soak import Cycle, Soak
from cdc_platform_tests.support.workloads.workload import Workload

MINUTE_S: Final = 60
DISASTERS: Final = (None, Failure.FULL, Failure.BROKEN, Failure.REFUSED)
"""Kinds of failures of an effect on the lake; at None the process dies."""
EFFECTS: Final = 60
"""A disaster happens at one of so many first effects of a cycle; a shorter one passes without it."""
SHORT_MINUTES: Final = MaintenanceSettings(
    keep_every_cut_s=10, keep_snapshots_s=120, keep_snapshots=20, keep_metadata_s=60, expire_every_cycles=60
)
"""Maintenance of a day that takes half an hour."""


class DayWorkload(Workload, Protocol):
    """A workload that meets faults of its source on the way."""

    @property
    def incidents(self) -> Counter[str]:
        """How often each kind of fault or change has come about."""
        ...


def with_short_minutes(settings: PipelineSettings) -> PipelineSettings:
    """Return the settings of a pipeline for which a minute passes in a second or two."""
    return replace(settings, maintenance=SHORT_MINUTES, local_read_s=2.0 * MINUTE_S)


@dataclass(frozen=True)
class Rhythm:
    """Numbers of cycles from one of a kind to the next.

    Args:
        reconciled: cycles after which tables and log are compared with the truth.
        struck: cycles in which the process dies, or the lake's disk or catalog fails.
        by_spark: cycles of which Spark does all reading and merging.
        schema_changed: cycles between which the schema changes.
    """

    reconciled: int = 100
    struck: int = 20
    by_spark: int = 24
    schema_changed: int = 20


@dataclass
class Day:
    """Runs the cycles of a workload, and notes what has come about and what is wrong.

    Args:
        workload: lets a minute pass before each cycle.
        spark: session with crash points.
        seed: of the dice that choose where disasters strike.
        rhythm: how often what happens.
    """

    workload: DayWorkload
    spark: SparkSession
    seed: int = 1
    rhythm: Rhythm = field(default_factory=Rhythm)
    cycles: int = 0
    cuts: int = 0
    reconciled: int = 0
    changes: int = 0
    doubled: int = 0
    processor_s: float = 0
    struck: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)  # noqa: S311  an input of tests, not a secret
        self._disasters = endless(DISASTERS)
        self.soak = self._open()

    @property
    def incidents(self) -> Counter[str]:
        """How often each kind of fault, change or disaster has come about."""
        return self.workload.incidents + self.struck

    def run(self, cycles: int) -> Iterator[Cycle]:
        """Run so many cycles, and yield those that were not cut short."""
        for _ in range(cycles):
            self.cycles += 1
            is_struck = self.cycles % self.rhythm.struck == 0
            done = self._run_struck() if is_struck else self._run_cycle()
            if done is not None:
                self.changes += done.changes
                self.processor_s += done.processor_s
                yield done
            if self.cycles % self.rhythm.reconciled == 0:
                self.reconcile(self.soak.differences())

    def end(self, *, has_checks: bool = True) -> None:
        """Reconcile what is left, and run every check over the whole lake if they are wanted."""
        self.reconcile(self.soak.faults() if has_checks else self.soak.differences())
        pipeline = self.soak.pipeline
        self.cuts, self.doubled = len(cut_positions(pipeline.lake)), count_doubled(pipeline)
        self.soak.close()

    def reconcile(self, faults: Sequence[str]) -> None:
        """Note what differs at a cut."""
        self.reconciled += 1
        self.wrong += (f"cycle {self.cycles}: {fault}" for fault in faults)

    def _run_cycle(self) -> Cycle:
        return self.soak.run_cycle(int(self.cycles % self.rhythm.by_spark == 0))

    def _run_struck(self) -> Cycle | None:
        """Run a cycle in which the process dies, or an effect fails; None if it died."""
        failure = next(self._disasters)
        place = Death(self._dice.randint(1, EFFECTS), self._dice.choice([Moment.BEFORE, Moment.AFTER]))
        if failure is not None:
            place = Death(place.number, Moment.BEFORE)
        with POINTS.counted(place, failure=failure):
            try:
                return self._run_cycle()
            except (ProcessDeath, Exception):
                # Java's part of a process raises its own exception, which may have been wrapped.
                if not POINTS.is_dead:
                    raise
                wait_for_spark(self.spark)
        self.struck["deaths of the process"] += 1
        self.soak.close()
        self.soak = self._open()
        return None

    def _open(self) -> Soak:
        """Open the pipeline as a new process does."""
        return Soak(self.workload, self.spark, self._mend, takes_turns=True)

    def _mend(self, error: CdcError) -> None:
        """Count a temporary error, and remove its cause."""
        self.struck[f"cycles tried again: {type(error).__name__}"] += 1
        if POINTS.has_failed:
            wait_for_spark(self.spark)
            POINTS.mend()
