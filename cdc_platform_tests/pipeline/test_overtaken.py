"""Two processes on one pipeline: one pauses while the other one goes ahead, then continues.

`python -m benchmarks.crash_points --overtaken published` pauses every source and kind of cycle at each place.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.support.crash_points.overtaking import Lead, outrun
from cdc_platform_tests.support.crash_points.points import Effect
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.spark_catalog import require_javac

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
TABLES = ("raw_change_records", "users")
"""A pause comes before a commit of each: the newest version that the run knows is outdated then.

Those of the log and of cuts are in `test_conflicts.py`.
"""


def is_commit_of(table: str) -> Callable[[Effect], bool]:
    """Return what knows the last file of a table's commit."""
    return lambda effect: f"/{table}/metadata/" in effect.target and effect.target.endswith(".json")


def is_look_by(function: Callable[..., object]) -> Callable[[Effect], bool]:
    """Return what knows a look at the catalog by a function of the pipeline."""
    return lambda effect: effect.target.endswith(f" {function.__name__}")


def fail(_pipeline: Pipeline, _spark: "SparkSession") -> None:
    """End a run before any effect, as a lake does that the trial has not set back."""
    raise LakeDamaged("before any effect", "not set back")


def test_a_process_that_pauses_mixes_nothing_into_what_another_one_publishes(spark: "SparkSession") -> None:
    """Every published row is right as soon as the run has ended, and both go on; no other error is hidden.

    A run that has merged its tables finds a log that another process has extended when it publishes.
    """
    require_javac()
    # A path that is short enough for a socket.
    with (
        TemporaryDirectory(prefix="crash-") as path,
        replace(SCENARIOS["datastream: ordinary"], cycles=1).open(spark, Path(path)) as trial,
    ):
        for table in TABLES:
            assert outrun(trial, is_commit_of(table), has_checks=False).faults == (), table
        assert outrun(trial, is_look_by(publish_cut), lead=Lead.ORDERED, has_checks=False).faults == ()
        with pytest.raises(LakeDamaged, match="before any effect"):
            outrun(replace(trial, act=fail), lambda _effect: True)
