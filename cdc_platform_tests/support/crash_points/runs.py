"""Runs of a pipeline that die, the recovery from them, and what is wrong afterwards."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.pipeline.cycle import finish_cycle, run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform_tests.support.crash_points.kept_lakes import KeptLake
from cdc_platform_tests.support.crash_points.lake_orphans import unreferenced_files
from cdc_platform_tests.support.crash_points.points import POINTS, Death, Died, Effect
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.workload import Workload

Act = Callable[[Pipeline, SparkSession], object]
"""What a run does besides opening the pipeline."""
CYCLES_MAX: Final = 20
"""So many cycles bring any recovery to its end."""
LOG_KEY: Final = ("table_name", "record_id", "mod_ordinal")


class PointNotReached(Exception):
    """A run ended before the effect at which it was to die: it has fewer effects this time."""


@dataclass(frozen=True)
class Recovery:
    """What became of a lake whose run died.

    ``seconds`` from the opening of the pipeline until it has caught up. ``orphans`` is the number of files
    that no metadata names then.
    """

    seconds: float
    orphans: int
    faults: tuple[str, ...]


@dataclass
class Trial:
    """A prepared lake, of which each death has a state of its own.

    Args:
        workload: sends the input, and knows what becomes of it.
        spark: session with crash points.
        kept: the lake before the run that dies.
        act: what that run does.
        changes: settings that differ from those of the workload.
        repeats: whether the user repeats what the run did, before the pipeline catches up.
    """

    workload: Workload
    spark: SparkSession
    kept: KeptLake
    act: Act
    changes: Mapping[str, Any] = field(default_factory=dict)
    repeats: bool = False

    @property
    def settings(self) -> PipelineSettings:
        """The settings of the pipeline."""
        return replace(self.workload.settings, **self.changes)

    def list_effects(self) -> tuple[Effect, ...]:
        """Return the effects of a run that nothing interrupts."""
        self.kept.restore()
        with POINTS.counted():
            self._run(self.act)
            return tuple(POINTS.effects)

    def list_effects_of_recovery(self, death: Death) -> tuple[Effect, ...]:
        """Return the effects of the recovery from a death."""
        self.kept.restore()
        self.die(self.act, death)
        with POINTS.counted():
            self._run(self.recover)
            return tuple(POINTS.effects)

    def survive(self, *deaths: Death) -> Recovery:
        """Die in the run and then in each recovery from it, recover, and return what came of it.

        Raises:
            PointNotReached: one of the runs had fewer effects.
        """
        self.kept.restore()
        for number, death in enumerate(deaths):
            self.die(self.recover if number else self.act, death)
        begun = time.monotonic()
        self._run(self.recover)
        seconds = time.monotonic() - begun
        with closing_source(self.settings) as pipeline:
            faults = tuple(self.faults(pipeline))
            return Recovery(seconds, len(unreferenced_files(pipeline.lake)), faults)

    def die(self, act: Act, death: Death) -> None:
        """Run something that dies.

        Raises:
            PointNotReached: it had fewer effects.
        """
        with POINTS.counted(death):
            try:
                self._run(act)
            except Died:
                pass
            except Exception:
                # Java's part of a process raises an exception of its own, which may have been wrapped.
                if not POINTS.is_dead:
                    raise
            if not POINTS.is_dead:
                raise PointNotReached(f"{death} of {len(POINTS.effects)} effects")
            self._wait_for_spark()

    def recover(self, pipeline: Pipeline, spark: SparkSession) -> None:
        """Do what the next process does: it finishes what was begun, and reads until nothing is new."""
        if self.repeats:
            self.act(pipeline, spark)
        finish_cycle(pipeline, spark)
        for _ in range(CYCLES_MAX):
            outcome = run_cycle(pipeline, spark)
            if not outcome.read.committed and not outcome.copy.is_going_on:
                return
        raise AssertionError(f"the pipeline has not caught up after {CYCLES_MAX} cycles")

    def faults(self, pipeline: Pipeline) -> Iterator[str]:
        """Yield what is wrong with a lake that has caught up."""
        yield from self.workload.differences(pipeline)
        log = pipeline.lake.system_table(LOG).scan(selected_fields=LOG_KEY).to_arrow()
        doubled = len(log) - len(log.group_by(list(LOG_KEY)).aggregate([]))
        if doubled:
            yield f"{doubled} changes are in the log twice"
        for name, text in failed_checks(pipeline, self.spark).items():
            yield f"check {name}: {text}"

    def _run(self, act: Act) -> None:
        with closing_source(self.settings) as pipeline:
            act(pipeline, self.spark)

    def _wait_for_spark(self) -> None:
        """Let Spark's jobs of the dead run end, while every effect of theirs is still refused."""
        tracker = self.spark.sparkContext.statusTracker()
        with suppress(Py4JError):
            while tracker.getActiveJobsIds():
                time.sleep(0.01)


class closing_source(closing[Pipeline]):  # noqa: N801  a context manager, named as Python names its own
    """A pipeline as a new process opens it, whose source is closed at the end."""

    def __init__(self, settings: PipelineSettings) -> None:
        super().__init__(open_pipeline(settings))

    def __exit__(self, *_error: object) -> None:
        self.thing.source.close()


def lake_folder(trial: Trial) -> Path:
    """Return the folder of a trial's lake."""
    return trial.kept.folder
