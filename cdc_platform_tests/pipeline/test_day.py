"""Some minutes of a day of each source: all faults, schema changes, deaths and a full disk.

`python -m benchmarks.day` runs whole days.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.pipeline import cycle_loop
from cdc_platform_tests.support.crash_points.spark_catalog import require_javac
from cdc_platform_tests.support.days.day import Rhythm
from cdc_platform_tests.support.days.sources import open_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CYCLES: Final = 4
RHYTHM: Final = Rhythm(struck=2, schema_changed=2)
EXPECTED: Final = {
    "spanner_postgresql": {"schema changes", "partitions ended"},
    "datastream": {"schema changes", "events late", "events repeated"},
    "debezium": {"schema changes", "snapshots"},
}
"""Kinds of faults and changes that come about in any case; `test_traffic.py` has the other dialect."""


@pytest.mark.integration
@pytest.mark.parametrize("name", EXPECTED)
def test_some_minutes_of_a_day_are_right(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Tables and log equal the truth while the process dies and the lake's disk fails."""
    require_javac()
    # The disk is mended at once.
    monkeypatch.setattr(cycle_loop, "BACKOFF_MAX_S", 0.0)
    with open_day(name, spark, tmp_path / "day", changes=40, seed=1, rhythm=RHYTHM) as day:
        for _ in day.run(CYCLES):
            pass
        day.end(has_checks=False)
    assert day.wrong == []
    assert day.doubled == 0
    assert day.incidents.keys() >= EXPECTED[name]
    assert sum(day.struck.values()) > 0
