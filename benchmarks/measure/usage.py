"""Use that steps make of the machine: processor seconds of driver, JVM and Python workers, memory, stages.

Everything comes from Linux's `/proc` and from Spark's own status store.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

DRIVER, JVM, WORKERS = "driver", "JVM", "Python workers"
_CLOCK_PERIOD_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_S: Final = 0.25


class _Process(NamedTuple):
    """A process, and the processor seconds that it has used itself."""

    parent: int
    own_s: float
    resident_bytes: int


class Stage(NamedTuple):
    """A stage of Spark as it has run; moments are seconds since 1970.

    `slowest` is how many times as long as the median task of the stage the slowest one took.
    """

    begun: float
    ended: float
    tasks: int
    task_s: float
    processor_s: float
    slowest: float


@dataclass
class StepUse:
    """Use that a step has made in all its cycles."""

    wall_s: float = 0.0
    written_bytes: int = 0
    processor_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stages: list[Stage] = field(default_factory=list)
    without_stage_s: float = 0.0
    """In which the driver alone was busy, or nobody."""

    @property
    def task_s(self) -> float:
        """Seconds of all tasks together."""
        return sum(stage.task_s for stage in self.stages)

    @property
    def slowest(self) -> float:
        """The slowest task as a multiple of the median one, in the parallel stage with the most work."""
        parallel = [stage for stage in self.stages if stage.tasks > 1]
        return max(parallel, key=lambda stage: stage.task_s).slowest if parallel else 1.0

    @property
    def serial_s(self) -> float:
        """Seconds that no further core shortens: those without a stage, and of stages of a single task."""
        return self.without_stage_s + sum(stage.task_s for stage in self.stages if stage.tasks == 1)


class Meter:
    """Measures steps, one after the other.

    Args:
        spark: a session of this process's own, whose JVM it has started.
        folder: where the lake's files are.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.steps: defaultdict[str, StepUse] = defaultdict(StepUse)
        self.peak_bytes: defaultdict[str, int] = defaultdict(int)
        self._folder = folder
        self._workers_s: dict[int, float] = {}
        self._before: dict[str, float] = {}
        self._bytes, self._begun = 0, 0.0
        self._status: Any = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        self._jvm = int(jvm.java.lang.ProcessHandle.current().pid())
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._empty = gateway.new_array(jvm.double, 0)
        self._median_and_max = gateway.new_array(jvm.double, 2)
        self._median_and_max[0], self._median_and_max[1] = 0.5, 1.0

    @contextmanager
    def watch_memory(self) -> Iterator[None]:
        """Record the peak memory that the kinds of processes hold until the end."""
        ended = Event()

        def watch() -> None:
            while not ended.wait(_SAMPLE_S):
                for kind, processes in self._kinds().items():
                    resident = sum(process.resident_bytes for process in processes.values())
                    self.peak_bytes[kind] = max(self.peak_bytes[kind], resident)

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def begin(self) -> None:
        """Let the first step begin."""
        # Listing the files of a large lake takes a while, which belongs to no step.
        self._bytes = _size_of(self._folder)
        self._before, self._begun = self._processor_s(), time.time()

    def end(self, step: str) -> None:
        """Add what has happened since the step before to a step."""
        # Measuring takes a while, too, which belongs to no step.
        ended, processor_s = time.time(), self._processor_s()
        before, bytes_before, begun = self._before, self._bytes, self._begun
        self.begin()
        use = self.steps[step]
        stages = [stage for stage in self._stages() if begun <= stage.begun < ended]
        use.wall_s += ended - begun
        use.without_stage_s += ended - begun - _covered_s(stages)
        use.stages += stages
        use.written_bytes += max(0, self._bytes - bytes_before)
        for kind, seconds in processor_s.items():
            use.processor_s[kind] += seconds - before[kind]

    def _processor_s(self) -> dict[str, float]:
        own = {
            kind: sum(processes[pid].own_s for pid in processes) for kind, processes in self._kinds().items()
        }
        # Spark ends workers that have nothing to do, and their seconds count for no parent.
        return own | {WORKERS: sum(self._workers_s.values())}

    def _kinds(self) -> dict[str, dict[int, _Process]]:
        processes = dict(_processes())
        workers, parents = dict[int, _Process](), {self._jvm}
        while parents:
            found = {pid: process for pid, process in processes.items() if process.parent in parents}
            workers |= found
            parents = set(found)
        self._workers_s |= {pid: process.own_s for pid, process in workers.items()}
        own = {kind: {pid: processes[pid]} for kind, pid in ((DRIVER, os.getpid()), (JVM, self._jvm))}
        return own | {WORKERS: workers}

    def _stages(self) -> Iterator[Stage]:
        listed = self._status.stageList(None, False, False, self._empty, None)
        for place in range(listed.size()):
            stage = listed.apply(place)
            if stage.submissionTime().isDefined() and stage.completionTime().isDefined():
                yield Stage(
                    stage.submissionTime().get().getTime() / 1e3,
                    stage.completionTime().get().getTime() / 1e3,
                    stage.numTasks(),
                    stage.executorRunTime() / 1e3,
                    stage.executorCpuTime() / 1e9,
                    self._slowest(stage.stageId(), stage.attemptId()),
                )

    def _slowest(self, stage: int, attempt: int) -> float:
        taken = self._status.taskSummary(stage, attempt, self._median_and_max)
        if taken.isEmpty():
            return 1.0
        times = taken.get().executorRunTime()
        return float(times.apply(1) / max(1.0, times.apply(0)))


def _processes() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended
            fields = text.rpartition(") ")[2].split()
            own_s = (int(fields[11]) + int(fields[12])) * _CLOCK_PERIOD_S
            yield int(folder.name), _Process(int(fields[1]), own_s, int(fields[21]) * _PAGE_BYTES)


def _covered_s(stages: Iterable[Stage]) -> float:
    """Return the seconds in which at least one stage ran."""
    covered, reached = 0.0, 0.0
    for stage in sorted(stages):
        covered += max(0.0, stage.ended - max(stage.begun, reached))
        reached = max(reached, stage.ended)
    return covered


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
