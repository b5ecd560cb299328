"""Maintenance of the quarantine: cycles read all of it, so it must not get slower with each record."""

import time
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake import LOG, QUARANTINED
from cdc_platform.lake.commits.commits import CYCLE, TAKEN, head
from cdc_platform.lake.state.quarantine import (
    ReplayMark,
    count_quarantined,
    load_quarantined,
    mark_replayed,
    untaken_records,
)
from cdc_platform.model.stream.quarantined_records import ReplaySource
from cdc_platform.pipeline.publishing.expire import READING_S, expire_own
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.lake.quarantine_entries import quarantine, quarantine_entry
from cdc_platform_tests.support.pipelines import make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.lake.catalog.lake_settings import LakeSettings
    from cdc_platform.pipeline.opened.pipeline import Pipeline

pytestmark = pytest.mark.integration

CYCLES: Final = 24
"""So many cycles with a quarantined record make a compaction due."""


def with_records(settings: "LakeSettings", cycles: int = CYCLES) -> "Pipeline":
    """Return a pipeline of which each cycle has quarantined a record."""
    pipeline = make_pipeline(settings)
    for cycle in range(1, cycles + 1):
        quarantine(pipeline.lake, cycle, quarantine_entry(str(cycle), cycle=cycle))
    return pipeline


def files_of(pipeline: "Pipeline") -> int:
    """Return the number of files with quarantined records."""
    return len([*pipeline.lake.system_table(QUARANTINED).scan().plan_files()])


def test_the_files_of_many_cycles_become_one(spark: "SparkSession", session_lake: "LakeSettings") -> None:
    """Where records are bad all day, each cycle leaves a file, and each one counts all records."""
    pipeline = with_records(session_lake)
    records = load_quarantined(pipeline.lake)
    for _ in range(5):
        maintain_lake(pipeline, spark)
    assert files_of(pipeline) == 1
    assert load_quarantined(pipeline.lake) == records
    # Later cycles replace what an interrupted one has left, and records are marked, in other files than that.
    quarantine(pipeline.lake, CYCLES + 1, quarantine_entry("later", cycle=CYCLES + 1))
    pipeline.lake.system_table(QUARANTINED).delete(f"cycle > {CYCLES}")
    mark_replayed(pipeline.lake, {(1, "1/1"): ReplayMark(6, CYCLES, ReplaySource.RECORDS)})
    assert count_quarantined(pipeline.lake) == CYCLES - 1


def test_records_of_an_interrupted_cycle_are_in_no_common_file(
    spark: "SparkSession", session_lake: "LakeSettings"
) -> None:
    """The cycle will write them again, which the table refuses for a part of a file."""
    pipeline = with_records(session_lake, cycles=3)
    entry = quarantine_entry("unfinished", cycle=4)
    table = pipeline.lake.system_table(QUARANTINED)
    table.append(
        table.schema().as_arrow().empty_table().from_pylist([entry], table.schema().as_arrow()), {CYCLE: "4"}
    )
    maintain_lake(pipeline, spark, thorough=True)
    assert files_of(pipeline) == 4


def test_expiry_keeps_what_shows_which_replays_are_taken(
    spark: "SparkSession", session_lake: "LakeSettings"
) -> None:
    """Many requests without a cycle in between: the snapshot that the log names stays, however old."""
    pipeline = with_records(session_lake, cycles=1)
    lake = pipeline.lake
    taken = head(lake.system_table(QUARANTINED))
    assert taken is not None
    log = lake.system_table(LOG)
    nothing = log.schema().as_arrow().empty_table()
    log.append(nothing, snapshot_properties={CYCLE: "2", TAKEN: str(taken.snapshot_id)})
    newest = pipeline.settings.maintenance.keep_snapshots
    for micros in range(newest // 2 + 5):
        mark_replayed(lake, {(1, "1/1"): ReplayMark(micros + 1, 1, ReplaySource.RECORDS)})
    before = len(lake.system_table(QUARANTINED).metadata.snapshots)
    later_micros = time.time_ns() // 1000 + 2 * READING_S * 1_000_000
    expire_own(pipeline, spark, QUARANTINED, later_micros, thorough=True)
    table = lake.system_table(QUARANTINED)
    assert newest < len(table.metadata.snapshots) < before
    assert [record.name for record in untaken_records(lake, table, log.refresh())] == ["1"]
