"""Two processes on one pipeline: one pauses while the other one goes ahead, then continues.

`python -m benchmarks.crash_points --overtaken published` pauses every source and kind of cycle at each place.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.publish import publish_cut
from cdc_platform_tests.support.crash_points.overtaking import Lead, list_places, outrun
from cdc_platform_tests.support.crash_points.points import POINTS, Effect
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.spark_catalog import require_javac

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
TABLES = ("raw_change_records", "change_log", "users", "cuts")
"""A pause comes before a commit of each: the newest version that the run knows is outdated then."""


def find_commit(effects: Sequence[Effect], table: str) -> int:
    """Return the number of the last file of a table's first commit."""
    return next(
        effect.number
        for effect in effects
        if f"/{table}/metadata/" in effect.target and effect.target.endswith(".json")
    )


def find_look(places: Sequence[Effect], function: Callable[..., object]) -> int:
    """Return the number of the first look at the catalog by a function of the pipeline."""
    return next(place.number for place in places if place.target.endswith(f" {function.__name__}"))


def fail(_pipeline: Pipeline, _spark: "SparkSession") -> None:
    """End a run before any effect, as a lake does that the trial has not set back."""
    raise LakeDamaged("before any effect", "not set back")


def test_a_process_that_pauses_mixes_nothing_into_what_another_one_publishes(spark: "SparkSession") -> None:
    """Every published row is right as soon as the run has ended, and both go on; no other error is hidden."""
    require_javac()
    # A path that is short enough for a socket.
    with (
        TemporaryDirectory(prefix="crash-") as path,
        replace(SCENARIOS["datastream: ordinary"], cycles=1).open(spark, Path(path)) as trial,
    ):
        for table in TABLES:
            # Again for each: the pause before has left more input.
            number = find_commit(list_places(trial), table)
            assert outrun(trial, number, has_checks=False).faults == (), POINTS.effects[number - 1]
        with pytest.raises(LakeDamaged, match="before any effect"):
            outrun(replace(trial, act=fail), 1)


def test_a_log_that_another_process_extends_before_the_cut_is_a_conflict(spark: "SparkSession") -> None:
    """A run that has merged its tables finds a longer log when it publishes: it says so, and goes on."""
    require_javac()
    with (
        TemporaryDirectory(prefix="crash-") as path,
        replace(SCENARIOS["datastream: ordinary"], cycles=1).open(spark, Path(path)) as trial,
    ):
        number = find_look(list_places(trial), publish_cut)
        outcome = outrun(trial, number, lead=Lead.ORDERED, has_checks=False)
        assert outcome.faults == (), POINTS.effects[number - 1]
