"""Successive deaths of one scenario, and their outcomes."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from cdc_platform_tests.support.crash_points.points import Death, Moment, describe
from cdc_platform_tests.support.crash_points.runs import Leftover, PointNotReached, Recovery, Trial

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Extent:
    """How often a scenario's processes die.

    Args:
        singly: at most so many moments of the run, evenly spread; None means each.
        in_pairs: so many runs that die, and whose recovery dies, both at random.
        checked_every: all checks run after the first of so many deaths; tables and log are compared after
            each.
        is_maintained: whether maintenance deletes at the end what the deaths have left.
        until_s: when no further process dies, by `time.monotonic`; the moments then come in random order.
        by_catalog: whether moments that leave the catalog as it is count as one, see `each_catalog`.
    """

    singly: int | None = None
    in_pairs: int = 0
    checked_every: int = 5
    is_maintained: bool = True
    until_s: float | None = None
    by_catalog: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.until_s is not None and time.monotonic() > self.until_s


@dataclass
class Series:
    """What came of the deaths of one scenario."""

    moments: int = 0
    deaths: int = 0
    pairs: int = 0
    checked: int = 0
    orphans: int = 0
    deleted_orphans: int = 0
    seconds: float = 0
    recoveries_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        """Median seconds of a recovery."""
        return statistics.median(self.recoveries_s or [0])

    @property
    def longest_s(self) -> float:
        """Seconds of the longest recovery."""
        return max(self.recoveries_s, default=0)

    def add(self, where: str, recovery: Recovery, deaths: int, *, is_checked: bool) -> None:
        """Count the outcome of one death, or of two."""
        self.deaths += deaths
        self.checked += is_checked
        self.orphans += recovery.orphans
        self.recoveries_s.append(recovery.seconds)
        self.faults += (f"{where}: {fault}" for fault in recovery.faults)


def run_series(trial: Trial, extent: Extent, chance: random.Random) -> Series:
    """Die at the moments of a run, and return the outcome."""
    begun_s = time.monotonic()
    leftovers = trial.list_leftovers()
    series = Series(moments=len(leftovers))
    for first in _firsts(leftovers, extent.in_pairs, chance):
        if not extent.is_over:
            _die_twice(series, trial, first, chance)
    _survive_each(
        series,
        each_catalog(leftovers) if extent.by_catalog else leftovers,
        lambda leftover, has_checks: trial.survive(leftover, has_checks=has_checks),
        lambda leftover: f"{leftover.death.moment.value} {describe(leftover.effect, trial.lake.folder)}",
        extent,
        chance,
    )
    return end_series(series, trial, extent, begun_s)


def run_places(
    trial: Trial,
    places: Sequence[ItemT],
    survive: Callable[[ItemT, bool], Recovery],
    describe_place: Callable[[ItemT], str],
    extent: Extent,
    chance: random.Random,
) -> Series:
    """Let something happen at some places of a run whose process lives on, and return the outcome.

    Args:
        trial: of the run.
        places: where it can happen.
        survive: lets it happen at a place, and makes all checks if it is asked to.
        describe_place: names a place.
        extent: how often.
        chance: chooses the order.
    """
    begun_s, series = time.monotonic(), Series(moments=len(places))
    _survive_each(series, places, survive, describe_place, extent, chance)
    return end_series(series, trial, extent, begun_s)


def _survive_each(
    series: Series,
    places: Sequence[ItemT],
    survive: Callable[[ItemT, bool], Recovery],
    describe_place: Callable[[ItemT], str],
    extent: Extent,
    chance: random.Random,
) -> None:
    """Add the outcome of as many places as the extent allows; an error of a recovery is a fault, too."""
    for number, place in enumerate(choose(places, extent, chance)):
        if number and extent.is_over:
            break
        is_checked = number % extent.checked_every == 0
        try:
            recovery = survive(place, is_checked)
        except PointNotReached:
            # The threads of this run had fewer effects than those of the one that was listed.
            continue
        except Exception as error:  # noqa: BLE001  whatever it is, the recovery has failed
            recovery = Recovery(0, 0, (f"{type(error).__name__}: {error}",))
        series.add(describe_place(place), recovery, 1, is_checked=is_checked)


def end_series(series: Series, trial: Trial, extent: Extent, begun_s: float) -> Series:
    """Maintain the lake if the extent says so, and return the series with its seconds since the beginning."""
    if extent.is_maintained:
        series.deleted_orphans, left = trial.delete_orphans()
        series.faults += left
    series.seconds = time.monotonic() - begun_s
    return series


def _die_twice(series: Series, trial: Trial, first: Death, chance: random.Random) -> None:
    try:
        recovery = trial.survive_two(first, chance.random())
    except PointNotReached:
        # The threads of this run had fewer effects than those of the one that was kept.
        return
    series.pairs += 1
    series.add(f"{first}, then in the recovery", recovery, 2, is_checked=True)


def _firsts(leftovers: Sequence[Leftover], count: int, chance: random.Random) -> Iterator[Death]:
    """Yield moments at which a run dies whose recovery dies, too; none leaves half of a file."""
    deaths = [leftover.death for leftover in leftovers if leftover.death.moment is not Moment.WITHIN]
    yield from (chance.choice(deaths) for _ in range(count if deaths else 0))


def each_catalog(leftovers: Sequence[Leftover]) -> list[Leftover]:
    """Return the last of the leftovers with the same catalog; of every other catalog, the last torn one.

    The next process reads only files that the catalog leads to, and they are the same in all of these. The
    last leftover has most of the others, which a name or a listing of a folder could collide with.
    """
    chosen = []
    for number, (_, equal) in enumerate(groupby(leftovers, lambda leftover: leftover.state.catalog)):
        of_catalog = [*equal]
        torn = [leftover for leftover in of_catalog if leftover.death.moment is Moment.WITHIN]
        chosen.append((torn if number % 2 and torn else of_catalog)[-1])
    return chosen


def choose(items: Sequence[ItemT], extent: Extent, chance: random.Random) -> list[ItemT]:
    """Return as many items as the extent allows, evenly spread; in random order if time may end them."""
    sample = _spread(items, extent.singly)
    if extent.until_s is not None:
        chance.shuffle(sample)
    return sample


def _spread(items: Sequence[ItemT], limit: int | None) -> list[ItemT]:
    """Return at most `limit` items, evenly spread from the first to the last."""
    if limit is None or len(items) <= limit:
        return [*items]
    return [items[number * (len(items) - 1) // max(1, limit - 1)] for number in range(limit)]
