"""Disks that are full or broken at one effect of a cycle, and a commit that is refused.

`python -m benchmarks.crash_points --failing full` does the same for every source and every kind of cycle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform_tests.pipeline.test_crash_points import folder
from cdc_platform_tests.support.crash_points.failures import list_effects, outlive
from cdc_platform_tests.support.crash_points.points import Death, Effect, EffectKind, Failure, Moment
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["folder"]
WRITTEN: Final = {Failure.FULL: "/change_log/data/", Failure.BROKEN: "/mortal/users/metadata/snap-"}
"""Files that remain half, by how they fail."""


def choose_places(effects: Sequence[Effect]) -> Iterator[tuple[Failure, Death]]:
    """Yield a file of the log, one of a table, and the commit of its merge."""
    for failure, part in WRITTEN.items():
        yield failure, Death(next(e.number for e in effects if part in e.target), Moment.WITHIN)
    for before, effect in pairwise(effects):
        if "/mortal/users/" in before.target and effect.kind is EffectKind.COMMIT:
            yield Failure.REFUSED, Death(effect.number, Moment.BEFORE)
            return


@pytest.mark.integration
def test_an_effect_that_fails_ends_the_cycle_and_nothing_else(spark: "SparkSession", folder: Path) -> None:
    """The error says what has failed, and the same process goes on."""
    with replace(SCENARIOS["datastream: ordinary"], cycles=1).open(spark, folder) as trial:
        places = [*choose_places(list_effects(trial))]
        assert [failure for failure, _ in places] == [Failure.FULL, Failure.BROKEN, Failure.REFUSED]
        for failure, place in places:
            assert outlive(trial, failure, place, has_checks=False).faults == (), failure
