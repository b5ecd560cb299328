"""The criteria of a soak: a run that grows fails the one that it should."""

import json
from dataclasses import asdict, replace
from typing import Any, Final

import pytest

from benchmarks.measure.soak_results import Sample, SoakResult, judge, markdown
from cdc_platform_tests.support.footprints.footprint import Footprint, Memory, Tree
from cdc_platform_tests.support.footprints.soak import Cycle

CYCLES: Final = 1000
EVERY: Final = 20
FOOTPRINT: Final = Footprint(0, 0, 20, 20, 330, 30, 60, 200, 1, 0, 1.0)
MEMORY: Final = Memory(100_000_000, 1, 1, 1, 1, 1)
TREE: Final = Tree(7, 70, 1000)


def steady() -> SoakResult:
    """Return a run in which nothing grows once it is warm."""
    cycles = [
        Cycle(number, "bank", 100, 9.0 if number < 50 else 1.5, 2.0, {}, FOOTPRINT)
        for number in range(1, CYCLES + 1)
    ]
    samples = [
        Sample(number, MEMORY, TREE, TREE, 50, 100, {"files": number})
        for number in range(EVERY, CYCLES + 1, EVERY)
    ]
    return SoakResult("spanner", cycles, samples, [])


def with_footprint(run: SoakResult, number: int, **numbers: int) -> SoakResult:
    """Return the run with other counts from one of its cycles on."""
    changed = [
        replace(cycle, footprint=replace(cycle.footprint, **numbers)) if cycle.number >= number else cycle
        for cycle in run.cycles
    ]
    return replace(run, cycles=changed)


def unmet(run: SoakResult) -> list[str]:
    """Return the criteria that a run does not meet."""
    return [criterion.name for criterion in judge(run) if not criterion.is_met]


def test_a_steady_run_meets_every_criterion() -> None:
    """Slow first cycles count for nothing, and a run is the same after a way through JSON."""
    run = steady()
    assert unmet(run) == []
    assert run == SoakResult.from_json(json.loads(json.dumps(asdict(run))))
    assert "| spanner | 1000 | 0 | 95 → 95 | 0 → 0 | 1.50 → 1.50 |" in markdown([run])


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"cached_plans": 1}, "cache manager empty"),
        ({"persisted_rdds": 1}, "no RDD persisted"),
        ({"python_handles": 26}, "at most 5 more handles of Python"),
        ({"java_handles": 336}, "at most 5 more handles of Java"),
        ({"python_threads": 41}, "at most 10 more threads of Python"),
        ({"java_threads": 71}, "at most 10 more threads of Java"),
    ],
)
def test_what_is_cached_in_the_end_is_a_leak(numbers: dict[str, int], expected: str) -> None:
    """Each count that has grown by the last hundred cycles fails its criterion, and no other."""
    assert [expected] == unmet(with_footprint(steady(), 901, **numbers))


def test_one_plan_left_after_one_cycle_is_a_leak() -> None:
    """The cache manager is empty after every cycle, not only after the last one."""
    run = steady()
    cycles = [*run.cycles]
    cycles[3] = replace(cycles[3], footprint=replace(FOOTPRINT, cached_plans=1))
    assert unmet(replace(run, cycles=cycles)) == ["cache manager empty"]


@pytest.mark.parametrize(("factor", "expected"), [(1.09, []), (1.11, ["heap at most 1.1 times"])])
def test_the_heap_is_flat_within_a_tenth(factor: float, expected: list[str]) -> None:
    """The medians of the windows decide."""
    run = steady()
    grown = replace(MEMORY, heap_bytes=int(MEMORY.heap_bytes * factor))
    samples = [replace(sample, memory=grown) if sample.cycle > 900 else sample for sample in run.samples]
    assert expected == unmet(replace(run, samples=samples))


@pytest.mark.parametrize(("seconds", "expected"), [(1.79, []), (1.81, ["seconds at most 1.2 times"])])
def test_cycles_stay_as_quick(seconds: float, expected: list[str]) -> None:
    """The means of the windows decide."""
    run = steady()
    cycles = [replace(cycle, whole_s=seconds) if cycle.number > 900 else cycle for cycle in run.cycles]
    assert expected == unmet(replace(run, cycles=cycles))


@pytest.mark.parametrize(
    "rest", [{"faults": ["`users` lacks 1 of 2 rows"]}, {"cycles": [], "samples": []}, {"samples": []}]
)
def test_a_wrong_or_a_broken_run_fails(rest: dict[str, Any]) -> None:
    """Differing tables fail a run, and so do too few cycles."""
    assert len(unmet(replace(steady(), **rest))) == 1
