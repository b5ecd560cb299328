"""Two processes on one pipeline: one pauses after an effect while the other one publishes, then goes on.

`python -m benchmarks.crash_points --overtaken` pauses every source and kind of cycle after every effect.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from cdc_platform_tests.support.crash_points.failures import list_effects
from cdc_platform_tests.support.crash_points.overtaking import outrun
from cdc_platform_tests.support.crash_points.points import Effect, EffectKind
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.spark_catalog import require_javac

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
TABLES = ("raw_change_records", "change_log", "users", "cuts")
"""A pause comes before a commit of each: the newest version that the run knows is outdated then."""


def choose_places(effects: Sequence[Effect]) -> Iterator[int]:
    """Yield the number of the last file of a table's commit, for some tables."""
    for table in TABLES:
        yield next(
            effect.number
            for effect in effects
            if f"/{table}/metadata/" in effect.target and effect.target.endswith(".json")
        )


def test_a_process_that_pauses_mixes_nothing_into_what_another_one_publishes(spark: "SparkSession") -> None:
    """Every published row is right as soon as the run has ended, and both processes go on."""
    require_javac()
    # A path that is short enough for a socket.
    with (
        TemporaryDirectory(prefix="crash-") as path,
        replace(SCENARIOS["datastream: ordinary"], cycles=1).open(spark, Path(path)) as trial,
    ):
        effects = list_effects(trial)
        assert EffectKind.COMMIT in {effect.kind for effect in effects}
        for number in choose_places(effects):
            assert outrun(trial, number, has_checks=False).faults == (), effects[number - 1]
