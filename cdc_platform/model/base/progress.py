"""Progress of a process: its running steps, each with its count, its rate and the time left."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from threading import Lock
from typing import Final, ParamSpec, TypeVar

from cdc_platform.model.base.quantities import as_duration, as_number

P = ParamSpec("P")
T = TypeVar("T")
TASKS: Final = "tasks"


@dataclass(frozen=True)
class TaskCount:
    """Tasks of the stages that Spark is running."""

    stages: tuple[int, ...]
    done: int
    total: int


@dataclass(frozen=True)
class StepReport:
    """Numbers of a step at one moment; terminals, pipes and run logs show the same ones.

    ``done`` and ``total`` count ``unit``, and are None if unknown. ``rate`` is the number of units per
    second, ``left_s`` the seconds until the end at that rate.
    """

    name: str
    elapsed_s: float
    unit: str = ""
    done: int | None = None
    total: int | None = None
    rate: float | None = None
    left_s: float | None = None
    note: str = ""

    def describe(self) -> str:
        """Return the step and its numbers as a line."""
        return f"{self.name}: {self.numbers()}"

    def numbers(self) -> str:
        """Return the known numbers: done of total, rate, time left, note, and the time so far."""
        notes = [self.note] if self.note else []
        return ", ".join([*self.counts(), *notes, f"{as_duration(self.elapsed_s)} so far"])

    def counts(self) -> list[str]:
        """Return those of them that the count implies: done of total, rate, and time left."""
        parts = []
        if self.done is not None and self.total is not None:
            share = f" ({100 * self.done // self.total} %)" if self.total else ""
            parts.append(f"{self.done:,} of {self.total:,} {self.unit}{share}")
        elif self.done:
            parts.append(f"{self.done:,} {self.unit}")
        if self.rate is not None:
            parts.append(f"{as_number(self.rate)} {self.unit}/s")
        if self.left_s is not None:
            parts.append(f"{as_duration(self.left_s)} left")
        return parts


@dataclass
class Step:
    """A running step; any thread may advance it.

    A step that continues an earlier run begins with the count of that run, which its rate leaves out.
    """

    name: str
    unit: str = ""
    total: int | None = None
    done: int = 0
    note: str = ""
    begun_s: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        self._done_before = self.done

    def advance(self, count: int = 1) -> None:
        """Add finished units."""
        with self._lock:
            self.done += count

    def counting(self, work: Callable[P, T]) -> Callable[P, T]:
        """Return a function that does the same and counts each call, except calls that return None."""

        @wraps(work)
        def work_and_count(*arguments: P.args, **options: P.kwargs) -> T:
            result = work(*arguments, **options)
            if result is not None:
                self.advance()
            return result

        return work_and_count

    def report(self, now_s: float) -> StepReport:
        """Return the step's numbers."""
        elapsed_s = now_s - self.begun_s
        if not self.unit:
            return StepReport(self.name, elapsed_s, note=self.note)
        done = self.done - self._done_before
        rate = done / elapsed_s if done > 0 and elapsed_s > 0 else None
        left_s = (self.total - self.done) / rate if self.total is not None and rate is not None else None
        return StepReport(self.name, elapsed_s, self.unit, self.done, self.total, rate, left_s, self.note)


class Progress:
    """The running steps of a pipeline in this process, outer ones first."""

    def __init__(self) -> None:
        self.count_tasks: Callable[[], TaskCount | None] | None = None
        """Counts Spark's tasks, once there is a session. The innermost step shows them if it has nothing else
        to count; their rate is that of the stages that run now."""
        self.is_resting = False
        self._steps: list[Step] = []
        self._stages: tuple[int, ...] = ()
        self._stages_step = Step(TASKS)

    @contextmanager
    def step(self, name: str, unit: str = "", total: int | None = None, done: int = 0) -> Iterator[Step]:
        """Yield a step that runs within the context."""
        new_step = Step(name, unit, total, done)
        self._steps.append(new_step)
        try:
            yield new_step
        finally:
            self._steps = [step for step in self._steps if step is not new_step]

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Declare a pause in which there is nothing to show, such as a wait for news or for the user."""
        self.is_resting = True
        try:
            yield
        finally:
            self.is_resting = False

    def reports(self) -> tuple[StepReport, ...]:
        """Return the numbers of all running steps."""
        now_s, steps = time.monotonic(), self._steps
        reports = [step.report(now_s) for step in steps]
        tasks = self.count_tasks() if reports and self.count_tasks is not None else None
        if tasks is None or tasks.total <= 1:
            # The only task of a stage shows no progress until the stage is over.
            return tuple(reports)
        if tasks.stages != self._stages:
            self._stages, self._stages_step = tasks.stages, Step(TASKS, TASKS, tasks.total, tasks.done)
        self._stages_step.done = tasks.done
        stages_report = self._stages_step.report(now_s)
        innermost = reports[-1]
        if innermost.done or innermost.total is not None:
            return (*reports, stages_report)
        return (*reports[:-1], replace(stages_report, name=innermost.name, elapsed_s=innermost.elapsed_s))


def without_frames(reports: Sequence[StepReport]) -> list[StepReport]:
    """Return the informative reports: those with numbers, and the innermost one."""
    return [report for report in reports[:-1] if report.unit] + list(reports[-1:])
