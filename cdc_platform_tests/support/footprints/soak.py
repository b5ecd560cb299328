"""Cycles of a workload in one process, each with fresh input, and what the process holds after each."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.cycle_loop import ErrorListener, follow_source, is_idle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform_tests.support.footprints.footprint import Footprint, Session
from cdc_platform_tests.support.workloads.workload import Workload

LAST_CYCLES_MAX: Final = 10
"""So many cycles are enough to read what is left."""


@dataclass(frozen=True)
class Cycle:
    """One cycle.

    Args:
        number: counted from 1.
        pipeline: name of the pipeline that ran it.
        changes: how many it has added to the log.
        whole_s: seconds from the arrival of its input to its end.
        processor_s: processor time meanwhile, of this process, of Java and of Spark's workers.
        steps_s: seconds of each step, as the platform reports them.
        footprint: what stays in use after it.
    """

    number: int
    pipeline: str
    changes: int
    whole_s: float
    processor_s: float
    steps_s: Mapping[str, float]
    footprint: Footprint


class Soak:
    """Runs a workload by the loop of `cdc-platform sync --continuous`, with one pipeline throughout.

    Args:
        workload: sends the input, and knows what becomes of it.
        spark: session that does the work.
        error_listener: receives what fails on the way; without it, every error ends the run.
        takes_turns: whether Spark does all reading and merging in every other cycle, as it does where there
            is much of both.
    """

    def __init__(
        self,
        workload: Workload,
        spark: SparkSession,
        error_listener: ErrorListener | None = None,
        *,
        takes_turns: bool = False,
    ) -> None:
        self.pipeline: Pipeline = open_pipeline(workload.settings)
        self._workload, self._spark = workload, spark
        self._session = Session.of(spark)
        pipelines = (self.pipeline, _by_spark(self.pipeline)) if takes_turns else (self.pipeline,)
        self._outcomes = tuple(
            follow_source(pipeline, spark, lambda: True, error_listener) for pipeline in pipelines
        )

    def run(self, cycles: int) -> Iterator[Cycle]:
        """Send input and run a cycle, so many times."""
        return take_turns([self], cycles)

    def run_cycle(self, number: int) -> Cycle:
        """Send input and run a cycle, which is counted as the given number."""
        self._workload.send()
        before_s, begun_s = self._session.measure().processor_s, time.perf_counter()
        outcome = next(self._outcomes[number % len(self._outcomes)])
        whole_s = time.perf_counter() - begun_s
        footprint = self._session.measure()
        processor_s = footprint.processor_s - before_s
        name, changes = self.pipeline.settings.name, outcome.order.changes
        return Cycle(number, name, changes, whole_s, processor_s, outcome.seconds, footprint)

    def faults(self) -> list[str]:
        """Read what is left, and return what is wrong: differing tables, and checks that fail."""
        return [*self.differences(), *self._failed_checks()]

    def differences(self) -> list[str]:
        """Read what is left, and return how the tables differ from what was sent."""
        self._workload.finish()
        for _ in range(LAST_CYCLES_MAX):
            if is_idle(next(self._outcomes[0])):
                break
        return self._workload.differences(self.pipeline)

    def close(self) -> None:
        """Close the source."""
        self.pipeline.source.close()

    def _failed_checks(self) -> Iterator[str]:
        for check in checks_of(self.pipeline.capabilities):
            result = check.run(self.pipeline, self._spark, EVERYTHING)
            if not (result.passed or check.is_warning):
                yield f"{check.name}: {result.summary}"


def _by_spark(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, settings=replace(pipeline.settings, local_read_s=0, local_merge_bytes=0))


def take_turns(soaks: Sequence[Soak], cycles: int) -> Iterator[Cycle]:
    """Run so many cycles in all, one of each soak after the other."""
    for number in range(1, cycles + 1):
        yield soaks[number % len(soaks)].run_cycle(number)
