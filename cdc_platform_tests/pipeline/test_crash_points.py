"""Processes that die at each durable effect, and at the effects of the recovery: nothing is lost or doubled.

`python -m benchmarks.crash_points` does the same for every source and every kind of cycle.
"""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.commits.commits import fact, head
from cdc_platform.model.base.stored_names import LOG
from cdc_platform_tests.support.crash_points.kept_lakes import CATALOG, KeptLake
from cdc_platform_tests.support.crash_points.points import POINTS, Death, EffectKind, Moment, ProcessDeath
from cdc_platform_tests.support.crash_points.runs import reopened
from cdc_platform_tests.support.crash_points.scenarios import SCENARIOS
from cdc_platform_tests.support.crash_points.series import Extent, run_series
from cdc_platform_tests.support.crash_points.spark_catalog import require_javac

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

EXTENTS: Final = {
    "spanner: moving keys": Extent(singly=6, checked_every=6, is_maintained=False, by_catalog=True),
    "datastream: ordinary": Extent(singly=4, checked_every=4, by_catalog=True),
    "debezium: replay": Extent(in_pairs=1, checked_every=99, is_maintained=False, by_catalog=True),
}
"""Two dozen deaths, of one kind at each state of the catalog; `.ci/run` has a hundred of 13 kinds."""
DEATHS_MIN: Final = 10
"""At each state of the catalog of a cycle, which makes about a dozen commits."""


@pytest.fixture
def folder() -> "Iterator[Path]":
    """A folder whose path is short enough for a socket."""
    require_javac()
    with TemporaryDirectory(prefix="crash-") as path:
        yield Path(path)


@pytest.mark.integration
@pytest.mark.parametrize("name", EXTENTS)
def test_a_death_at_any_effect_loses_and_doubles_nothing(
    spark: "SparkSession", folder: Path, name: str
) -> None:
    """The next process finishes what was begun, and maintenance deletes what the deaths have left.

    Of the moments between two commits, one counts: what they leave is the same for the next process.
    """
    with SCENARIOS[name].open(spark, folder) as trial:
        series = run_series(trial, EXTENTS[name], random.Random(name))  # noqa: S311  no secret
    assert series.faults == []
    assert series.deaths >= (EXTENTS[name].singly or DEATHS_MIN)
    assert (series.deleted_orphans > 0) == EXTENTS[name].is_maintained


@pytest.mark.integration
def test_what_a_death_has_damaged_is_noticed(spark: "SparkSession", folder: Path) -> None:
    """A log that lacks a commit, and one that has it twice, differ from what was sent."""
    with SCENARIOS["spanner: ordinary"].open(spark, folder) as trial:
        trial.lake.restore(trial.list_leftovers()[-1].state)
        with reopened(trial.settings) as pipeline:
            assert list(trial.faults(pipeline)) == []
            log = pipeline.lake.system_table(LOG)
            newest = head(log)
            assert newest is not None
            cycle = fact(newest, "cdc.cycle")
            rows = log.scan(row_filter=f"cycle = {cycle}").to_arrow()
            log.append(rows)
            assert any("twice" in fault for fault in trial.faults(pipeline))
            log.refresh().delete(f"cycle = {cycle}")
            assert list(trial.faults(pipeline)) != []


def test_a_state_of_a_lake_has_the_files_that_it_had(tmp_path: Path) -> None:
    """A file that was replaced, deleted or torn since then is as it was, and a later one is gone."""
    folder = tmp_path / "lake"
    folder.mkdir()
    lake = KeptLake(folder, tmp_path / "pool")
    for name in ("replaced", "deleted", "torn"):
        (folder / name).write_text(f"{name} at first")
    former, torn = lake.keep(), lake.keep(folder / "torn")
    (folder / "other").write_text("replaced")
    (folder / "other").replace(folder / "replaced")
    (folder / "deleted").unlink()
    (folder / "later").write_text("later")
    present = lake.keep()
    lake.restore(torn)
    assert (folder / "torn").read_text() == "torn a"
    lake.restore(former)
    expected = {name: f"{name} at first" for name in ("replaced", "deleted", "torn")}
    assert expected == {path.name: path.read_text() for path in folder.iterdir() if path.name != CATALOG}
    lake.restore(present)
    assert (folder / "replaced").read_text() == "replaced"
    assert sorted(path.name for path in folder.iterdir()) == [CATALOG, "later", "replaced", "torn"]


def test_a_run_that_died_has_no_further_effect() -> None:
    """Each effect of a dead run is refused, also in clean-up code, and the next run starts over."""
    effects: list[str] = []

    def run() -> None:
        try:
            for name in "abc":
                POINTS.have(EffectKind.COMMIT, name, lambda name=name: effects.append(name))  # type: ignore[misc]  # a default
        finally:
            POINTS.have(EffectKind.DELETE, "z", lambda: effects.append("z"))

    for moment, expected in ((Moment.BEFORE, ["a"]), (Moment.AFTER, ["a", "b"])):
        effects.clear()
        with POINTS.counted(Death(2, moment)), pytest.raises(ProcessDeath):
            run()
        assert expected == effects
    with POINTS.counted():
        run()
    assert effects == ["a", "b", "a", "b", "c", "z"]
