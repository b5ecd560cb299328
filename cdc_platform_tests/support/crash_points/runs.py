"""Runs of a pipeline that die, the recovery from them, and what is wrong afterwards."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.cycle import finish_cycle, run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.support.crash_points.kept_lakes import KeptLake, LakeState
from cdc_platform_tests.support.crash_points.lake_orphans import unreferenced_files
from cdc_platform_tests.support.crash_points.points import (
    POINTS,
    Death,
    Effect,
    Moment,
    ProcessDeath,
    path_of,
)
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.workloads.workload import Workload

Act = Callable[[Pipeline, SparkSession], object]
"""Work of a run, after it has opened the pipeline."""
LONG_AGO_S: Final = 7 * 24 * 3600.0
CYCLES_MAX: Final = 20
"""So many cycles bring any recovery to its end."""
LOG_KEY: Final = ("table_name", "record_id", "mod_ordinal")


class PointNotReached(Exception):
    """A run ended before the effect at which it was to die: it has fewer effects this time."""


@dataclass(frozen=True)
class Recovery:
    """What became of a lake whose run died.

    ``seconds`` from the opening of the pipeline until it has caught up. ``orphans`` is the number of files
    that no metadata names then, if all checks were made.
    """

    seconds: float
    orphans: int
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Leftover:
    """The lake as a run leaves it that dies at a moment."""

    death: Death
    effect: Effect
    state: LakeState


@dataclass
class Trial:
    """A prepared lake, of which each death has its own state.

    Args:
        workload: sends the input, and knows what becomes of it.
        spark: session with crash points.
        lake: its states.
        begun: the state before the run that dies.
        act: what that run does.
        changes: settings that differ from those of the workload.
        repeats: whether the user repeats what the run did, before the pipeline catches up.
        has_sent: whether more input has been sent since the lake was prepared.
    """

    workload: Workload
    spark: SparkSession
    lake: KeptLake
    begun: LakeState
    act: Act
    changes: Mapping[str, Any] = field(default_factory=dict)
    repeats: bool = False
    has_sent: bool = False

    @property
    def settings(self) -> PipelineSettings:
        """The settings of the pipeline."""
        return replace(self.workload.settings, **self.changes)

    def list_leftovers(self) -> tuple[Leftover, ...]:
        """Return what a run leaves if it dies before, within or after each of its effects.

        After an effect and before the next one the lake is the same, unless several threads have effects:
        equal states are returned once.
        """
        self.lake.restore(self.begun)
        leftovers: dict[LakeState, Leftover] = {}

        def keep(death: Death, effect: Effect) -> None:
            is_torn = death.moment is Moment.WITHIN
            state = self.lake.keep(path_of(effect.target) if is_torn else None)
            leftovers.setdefault(state, Leftover(death, effect, state))

        with POINTS.counted(witness=keep):
            self._run(self.act)
        return tuple(leftovers.values())

    def survive(self, leftover: Leftover, *, has_checks: bool = True) -> Recovery:
        """Recover from a death, and return the outcome."""
        self.lake.restore(leftover.state)
        return self.recovery(has_checks=has_checks)

    def survive_two(self, first: Death, second: float, *, has_checks: bool = True) -> Recovery:
        """Die in the run, die again in the recovery, recover, and return the outcome.

        Args:
            first: where the run dies.
            second: where the recovery dies, as a share between 0 and 1 of the moments before and after each
                of its effects.
            has_checks: whether all checks are made.

        Raises:
            PointNotReached: one of the runs had fewer effects.
        """
        self.lake.restore(self.begun)
        self.die(self.act, first)
        state = self.lake.keep()
        with POINTS.counted():
            self._run(self.recover)
            moments = (Moment.BEFORE, Moment.AFTER)
            deaths = [Death(effect.number, moment) for effect in POINTS.effects for moment in moments]
        self.lake.restore(state)
        if not deaths:
            raise PointNotReached(f"the recovery from {first} has no effect")
        self.die(self.recover, deaths[int(second * len(deaths))])
        return self.recovery(has_checks=has_checks)

    def delete_orphans(self) -> tuple[int, list[str]]:
        """Put every file that any death left into a lake that has recovered, and maintain it days later.

        Returns:
            how many files no metadata named, and what is wrong after they have been deleted.
        """
        self.lake.restore(self.begun)
        if self.has_sent:
            # Input within the lake's folder was set back, and the next one brings it along.
            self.workload.send()
            self.workload.finish()
        self._run(self.recover)
        self.lake.add_kept_files(age_s=LONG_AGO_S)
        with reopened(self.settings) as pipeline:
            orphans = unreferenced_files(pipeline.lake)
            maintain_lake(pipeline, self.spark, thorough=True)
            leftovers = unreferenced_files(pipeline.lake) & orphans
            faults = [*self.faults(pipeline), *self.failed_checks(pipeline)]
            return len(orphans), [*(f"maintenance left {file}" for file in sorted(leftovers)), *faults]

    def recovery(self, *, has_checks: bool) -> Recovery:
        """Recover from what the lake is now, and return the outcome."""
        begun = time.monotonic()
        self._run(self.recover)
        return self.judge(time.monotonic() - begun, has_checks=has_checks)

    def judge(self, seconds: float, *, has_checks: bool) -> Recovery:
        """Return the outcome of a recovery within some seconds."""
        with reopened(self.settings) as pipeline:
            faults, orphans = [*self.faults(pipeline)], set[Path]()
            if has_checks:
                faults += self.failed_checks(pipeline)
                orphans = unreferenced_files(pipeline.lake)
            return Recovery(seconds, len(orphans), tuple(faults))

    def die(self, act: Act, death: Death) -> None:
        """Run something that dies.

        Raises:
            PointNotReached: it had fewer effects.
        """
        with POINTS.counted(death):
            try:
                self._run(act)
            except ProcessDeath:
                pass
            except Exception:
                # Java's part of a process raises its own exception, which may have been wrapped.
                if not POINTS.is_dead:
                    raise
            if not POINTS.is_dead:
                raise PointNotReached(f"{death} of {len(POINTS.effects)} effects")
            wait_for_spark(self.spark)

    def recover(self, pipeline: Pipeline, spark: SparkSession) -> None:
        """Do what the next process does: it finishes what was begun, and reads until nothing is new."""
        if self.repeats:
            self.act(pipeline, spark)
        finish_cycle(pipeline, spark)
        for _ in range(CYCLES_MAX):
            outcome = run_cycle(pipeline, spark)
            if outcome.read.committed or outcome.copy.is_pending:
                continue
            if newest_cut(pipeline.lake) is not None:
                return
            # A stream that begins at the source's present has something to read once time has passed.
            self.workload.send()
        raise AssertionError(f"the pipeline has not caught up after {CYCLES_MAX} cycles")

    def faults(self, pipeline: Pipeline) -> Iterator[str]:
        """Yield what is wrong with a lake that has caught up."""
        yield from self.workload.differences(pipeline)
        if doubled := count_doubled(pipeline):
            yield f"{doubled} changes are in the log twice"

    def failed_checks(self, pipeline: Pipeline) -> Iterator[str]:
        """Yield what the checks say that fail; each looks at the whole lake."""
        checks = [check.name for check in checks_of(pipeline.capabilities) if not check.is_warning]
        for name, text in failed_checks(pipeline, self.spark, *checks).items():
            yield f"check {name}: {text}"

    def _run(self, act: Act) -> None:
        with reopened(self.settings) as pipeline:
            act(pipeline, self.spark)


def count_doubled(pipeline: Pipeline) -> int:
    """Return how many changes of the log are in it already."""
    log = pipeline.lake.system_table(LOG).scan(selected_fields=LOG_KEY).to_arrow()
    return len(log) - len(log.group_by(list(LOG_KEY)).aggregate([]))


def wait_for_spark(spark: SparkSession) -> None:
    """Let Spark's jobs of a run that is over end, while their effects are still refused, or fail."""
    tracker = spark.sparkContext.statusTracker()
    with suppress(Py4JError):
        while tracker.getActiveJobsIds():
            time.sleep(0.01)


@contextmanager
def reopened(settings: PipelineSettings) -> Iterator[Pipeline]:
    """Provide a pipeline as a new process opens it, and close its source."""
    pipeline = open_pipeline(settings)
    try:
        yield pipeline
    finally:
        pipeline.source.close()
