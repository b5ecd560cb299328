"""Results of a soak, and the criteria that they must meet."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cdc_platform_tests.support.footprints.footprint import Footprint, Memory, Tree
from cdc_platform_tests.support.footprints.soak import Cycle

WINDOW: Final = 100
"""Cycles at the beginning and at the end of a run that are compared; a third of a shorter run."""
HEAP_GROWTH_MAX: Final = 1.1
SECONDS_GROWTH_MAX: Final = 1.2
HANDLES_GROWTH_MAX: Final = 5
THREADS_GROWTH_MAX: Final = 10
"""Java pools start and end threads on demand, so this limit is higher."""
MIB: Final = 1024 * 1024
FLAT: Final[Mapping[str, tuple[int, Callable[[Footprint], int]]]] = {
    "handles of Python": (HANDLES_GROWTH_MAX, lambda footprint: footprint.python_handles),
    "handles of Java": (HANDLES_GROWTH_MAX, lambda footprint: footprint.java_handles),
    "threads of Python": (THREADS_GROWTH_MAX, lambda footprint: footprint.python_threads),
    "threads of Java": (THREADS_GROWTH_MAX, lambda footprint: footprint.java_threads),
}
"""Counts that may grow by at most a fixed number."""

Pair = tuple[float, float]
"""A measurement in the early window, and in the last one."""


@dataclass(frozen=True)
class Sample:
    """Measurements that are taken at regular intervals.

    Args:
        cycle: after which it was taken.
        memory: of both processes.
        temporary: files in the folder for temporary files.
        lake: files of the lake.
        max_snapshots: live snapshots of the table that has most.
        metadata_files: metadata files of all tables.
        rows: of each of the platform's own tables, in all lakes.
    """

    cycle: int
    memory: Memory
    temporary: Tree
    lake: Tree
    max_snapshots: int
    metadata_files: int
    rows: Mapping[str, int]


@dataclass(frozen=True)
class SoakResult:
    """The run of one source.

    Args:
        name: of the source.
        cycles: in their order.
        samples: in their order.
        faults: what is wrong at the end; empty where tables and checks are right.
    """

    name: str
    cycles: Sequence[Cycle]
    samples: Sequence[Sample]
    faults: Sequence[str]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "SoakResult":
        """Return the run from the JSON of `dataclasses.asdict`."""
        return cls(
            fields["name"],
            [Cycle(**{**cycle, "footprint": Footprint(**cycle["footprint"])}) for cycle in fields["cycles"]],
            [_sample(sample) for sample in fields["samples"]],
            fields["faults"],
        )

    @property
    def window(self) -> int:
        """Number of cycles at either end that are compared."""
        return min(WINDOW, len(self.cycles) // 3)

    @property
    def early(self) -> Sequence[Cycle]:
        """The window after the first one, which warms up."""
        return self.cycles[self.window : 2 * self.window]

    @property
    def late(self) -> Sequence[Cycle]:
        """The last window."""
        return self.cycles[-self.window :]

    @property
    def can_be_compared(self) -> bool:
        """Whether there are enough cycles and samples."""
        return bool(self.window and self.sampled(self.early) and self.sampled(self.late))

    def sampled(self, cycles: Sequence[Cycle]) -> list[Sample]:
        """Return the samples that were taken in a window."""
        return [sample for sample in self.samples if cycles[0].number <= sample.cycle <= cycles[-1].number]


@dataclass(frozen=True)
class Criterion:
    """Whether one criterion is met, with the number that decides it."""

    name: str
    is_met: bool
    value: float
    summary: str


def judge(result: SoakResult) -> list[Criterion]:
    """Return whether each criterion is met.

    The last hundred cycles are compared with those from the 101st to the 200th, since the first hundred warm
    up Java, Spark's pools and the platform. Heap, handles and threads are compared by their medians, seconds
    by their means.
    """
    criterions = [
        Criterion("tables and checks", not result.faults, len(result.faults), "; ".join(result.faults)),
        _none("cache manager empty", result, lambda footprint: footprint.cached_plans),
        _none("no RDD persisted", result, lambda footprint: footprint.persisted_rdds),
    ]
    if not result.can_be_compared:
        return [
            *criterions,
            Criterion("enough cycles", is_met=False, value=len(result.cycles), summary="too few"),
        ]
    return [
        *criterions,
        _ratio("heap", HEAP_GROWTH_MAX, _of_samples(result, _heap_mib), "MiB"),
        _ratio("seconds", SECONDS_GROWTH_MAX, _of_cycles(result, _whole_s, statistics.mean), "s a cycle"),
        *(_flat(name, limit, _of_footprints(result, count)) for name, (limit, count) in FLAT.items()),
    ]


def markdown(results: Iterable[SoakResult]) -> str:
    """Return a table of the runs; two numbers are those of the second and of the last window."""
    heads = (
        *("source", "cycles", "cache manager, maximum", "heap, MiB", "Python, MiB", "seconds a cycle"),
        *("processor seconds a cycle", "handles, Python and Java", "threads, Python and Java"),
        *("temporary files", "files of the lake", "snapshots, maximum", "criteria"),
    )
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_row(item))} |" for item in results)])


def _row(result: SoakResult) -> list[str]:
    failed = [criterion.name for criterion in judge(result) if not criterion.is_met]
    outcome = f"failed: {', '.join(failed)}" if failed else "passed"
    begin = [result.name, str(len(result.cycles))]
    if not result.can_be_compared:
        return [*begin, *["-"] * 10, outcome]
    pairs = [_pair(_of_footprints(result, count), 0) for _, count in FLAT.values()]
    return [
        *begin,
        str(max(cycle.footprint.cached_plans for cycle in result.cycles)),
        _pair(_of_samples(result, _heap_mib), 0),
        _pair(_of_samples(result, lambda sample: sample.memory.python_rss_bytes / MIB), 0),
        _pair(_of_cycles(result, _whole_s, statistics.mean), 2),
        _pair(_of_cycles(result, lambda cycle: cycle.processor_s, statistics.mean), 2),
        ", ".join(pairs[:2]),
        ", ".join(pairs[2:]),
        _pair(_of_samples(result, lambda sample: sample.temporary.files), 0),
        _pair(_of_samples(result, lambda sample: sample.lake.files), 0),
        _pair(_of_samples(result, lambda sample: sample.max_snapshots), 0),
        outcome,
    ]


def _pair(numbers: Pair, digits: int) -> str:
    return " → ".join(f"{number:,.{digits}f}" for number in numbers)


def _none(name: str, result: SoakResult, count: Callable[[Footprint], int]) -> Criterion:
    counts = [count(cycle.footprint) for cycle in result.cycles]
    first = next((number for number, count in enumerate(counts, 1) if count), None)
    summary = f"first in cycle {first}, {counts[-1]} after the last one" if first is not None else ""
    return Criterion(name, first is None, max(counts, default=0), summary)


def _ratio(name: str, limit: float, pair: Pair, unit: str) -> Criterion:
    early, late = pair
    ratio = late / early if early else math.inf
    summary = f"from {early:.2f} to {late:.2f} {unit}"
    return Criterion(f"{name} at most {limit} times", ratio <= limit, ratio, summary)


def _flat(name: str, limit: int, pair: Pair) -> Criterion:
    early, late = pair
    return Criterion(
        f"at most {limit} more {name}", late - early <= limit, late - early, f"{early} to {late}"
    )


def _of_footprints(result: SoakResult, count: Callable[[Footprint], int]) -> Pair:
    return _of_cycles(result, lambda cycle: count(cycle.footprint), statistics.median)


def _of_cycles(
    result: SoakResult, number: Callable[[Cycle], float], whole: Callable[[Iterable[float]], float]
) -> Pair:
    return whole([*map(number, result.early)]), whole([*map(number, result.late)])


def _of_samples(result: SoakResult, number: Callable[[Sample], float]) -> Pair:
    early, late = (
        statistics.median(map(number, result.sampled(cycles))) for cycles in (result.early, result.late)
    )
    return early, late


def _heap_mib(sample: Sample) -> float:
    return sample.memory.heap_bytes / MIB


def _whole_s(cycle: Cycle) -> float:
    return cycle.whole_s


def _sample(fields: Mapping[str, Any]) -> Sample:
    nested = {
        "memory": Memory(**fields["memory"]),
        "temporary": Tree(**fields["temporary"]),
        "lake": Tree(**fields["lake"]),
    }
    return Sample(**{**fields, **nested})
