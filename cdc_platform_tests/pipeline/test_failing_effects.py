"""Disks that are full or broken at one effect of a cycle, a commit that is refused, a lake that is restored.

`python -m benchmarks.crash_points --failing full` lets effects of every source and kind of cycle fail.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform_tests.support.crash_points.failures import list_effects, outlive
from cdc_platform_tests.support.crash_points.points import (
    CrashPoints,
    Death,
    Effect,
    EffectFailure,
    EffectKind,
    Failure,
    Moment,
)
from cdc_platform_tests.support.crash_points.runs import Trial
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.spark_catalog import require_javac

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
WRITTEN: Final = {Failure.FULL: "/change_log/data/", Failure.BROKEN: "/mortal/users/metadata/snap-"}
"""Files that remain half, by how they fail."""


@pytest.fixture(scope="module")
def trial(spark: "SparkSession") -> Iterator[Trial]:
    """A lake of Datastream's files after a cycle, with input for another one."""
    require_javac()
    # A path that is short enough for a socket.
    with (
        TemporaryDirectory(prefix="crash-") as path,
        replace(SCENARIOS["datastream: ordinary"], cycles=1).open(spark, Path(path)) as trial,
    ):
        yield trial


def choose_places(effects: Sequence[Effect]) -> Iterator[tuple[Failure, Death]]:
    """Yield a file of the log, one of a table, and the commit of its merge."""
    for failure, part in WRITTEN.items():
        yield failure, Death(next(e.number for e in effects if part in e.target), Moment.WITHIN)
    for before, effect in pairwise(effects):
        if "/mortal/users/" in before.target and effect.kind is EffectKind.COMMIT:
            yield Failure.REFUSED, Death(effect.number, Moment.BEFORE)
            return


def test_an_effect_that_fails_ends_the_cycle_and_nothing_else(trial: Trial) -> None:
    """The error says what has failed, and the same process continues."""
    places = [*choose_places(list_effects(trial))]
    assert [failure for failure, _ in places] == [Failure.FULL, Failure.BROKEN, Failure.REFUSED]
    for failure, place in places:
        assert outlive(trial, failure, place, has_checks=False).faults == (), failure


def test_a_failure_waits_for_an_effect_that_can_fail_by_it() -> None:
    """Threads merge tables, so an effect may have another number in the next run; a single one fails."""
    kinds = (EffectKind.COMMIT, EffectKind.WRITE, EffectKind.COMMIT, EffectKind.COMMIT, EffectKind.WRITE)
    assert failed_effects(Death(2, Moment.BEFORE), Failure.REFUSED, kinds) == [3]
    assert failed_effects(Death(3, Moment.WITHIN), Failure.BROKEN, kinds) == [5]


def failed_effects(place: Death, failure: Failure, kinds: Sequence[EffectKind]) -> list[int]:
    """Return the numbers of the effects that fail, if each of them may be torn that writes."""
    points, numbers = CrashPoints(), list[int]()
    with points.counted(place, failure=failure):
        for kind in kinds:
            try:
                number = points.before(kind, "")
                if kind is EffectKind.WRITE:
                    points.is_torn(number)
                points.after(number)
            except EffectFailure:
                numbers.append(len(points.effects))
    return numbers


def test_a_copy_whose_catalog_is_older_than_its_files_continues(trial: Trial) -> None:
    """Cycles since are made again; the other way round a file is missing, and the error says what to do."""
    list_effects(trial)
    later = trial.lake.keep()
    trial.lake.restore(replace(later, catalog=trial.begun.catalog))
    assert trial.recovery(has_checks=True).faults == ()
    trial.lake.restore(replace(later, files=trial.begun.files))
    with pytest.raises(LakeDamaged, match=r"metadata\.json: .* a backup of the catalog that is not newer"):
        trial.recovery(has_checks=False)
