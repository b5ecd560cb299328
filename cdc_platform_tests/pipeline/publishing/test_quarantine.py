"""Maintenance of the quarantine: cycles read all of it, so it must not get slower with each record."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.commits.commits import TAKEN, head
from cdc_platform.lake.commits.writes import CycleStep, commit_cycle
from cdc_platform.lake.state.quarantine import (
    ReplayMark,
    count_quarantined_records,
    load_quarantine,
    mark_replayed,
    untaken_records,
)
from cdc_platform.model.base.stored_names import CYCLE, DELETION_MARKERS, LOG, QUARANTINE
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.quarantined_records import ReplaySource
from cdc_platform.pipeline.publishing import maintain
from cdc_platform.pipeline.publishing.expiry import READING_S, expire_system_table
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.lake.quarantine_entries import quarantine, quarantine_entry
from cdc_platform_tests.support.datastream.pipelines import make_pipeline as make_events_pipeline
from cdc_platform_tests.support.interruptions import interrupt_once
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
    return len([*pipeline.lake.system_table(QUARANTINE).scan().plan_files()])


def test_the_files_of_many_cycles_become_one(spark: "SparkSession", session_lake: "LakeSettings") -> None:
    """Where records are bad all day, each cycle leaves a file, and each one counts all records."""
    pipeline = with_records(session_lake)
    records = load_quarantine(pipeline.lake)
    for _ in range(5):
        maintain_lake(pipeline, spark)
    assert files_of(pipeline) == 1
    assert load_quarantine(pipeline.lake) == records
    # Later cycles replace what an interrupted one has left, and records are marked, in other files than that.
    quarantine(pipeline.lake, CYCLES + 1, quarantine_entry("later", cycle=CYCLES + 1))
    pipeline.lake.system_table(QUARANTINE).delete(f"cycle > {CYCLES}")
    mark_replayed(pipeline.lake, {(1, "1/1"): ReplayMark(6, CYCLES, ReplaySource.RECORDS)})
    assert count_quarantined_records(pipeline.lake) == CYCLES - 1


def leave_unfinished(pipeline: "Pipeline", name: str, cycle: int) -> pa.Table:
    """Write a row of a cycle that ends before its log, and return the row."""
    table = pipeline.lake.system_table(name)
    entry = {**dict.fromkeys(table.schema().column_names), **quarantine_entry("unfinished", cycle=cycle)}
    rows = pa.Table.from_pylist([entry], table.schema().as_arrow())
    table.append(rows, {CYCLE: str(cycle)})
    return rows


@pytest.mark.parametrize(("name", "is_within"), [(QUARANTINE, True), (DELETION_MARKERS, False)])
def test_rows_of_an_interrupted_cycle_are_in_no_common_file(
    spark: "SparkSession",
    session_lake: "LakeSettings",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_within: bool,
) -> None:
    """The cycle will write them again, which Spark refuses for a part of a file: no cycle would succeed.

    Another process may be interrupted while this one maintains other tables.
    """
    pipeline = make_events_pipeline(session_lake, tmp_path)
    for cycle in range(1, 4):
        leave_unfinished(pipeline, name, cycle)
        quarantine(pipeline.lake, cycle)
    interrupt = partial(leave_unfinished, pipeline, name, 4)
    if is_within:
        # Not while it compacts the same one, which ends with a conflict.
        monkeypatch.setattr(maintain, "PARALLEL_TABLES", 1)
        interrupt_once(monkeypatch, maintain, "compact_small_files", interrupt)
    else:
        interrupt()
    maintain_lake(pipeline, spark, thorough=True)
    assert len([*pipeline.lake.system_table(name).scan().plan_files()]) == 2
    table = pipeline.lake.system_table(name)
    rows = table.scan("cycle = 4").to_arrow()
    target = pipeline.lake.spark_system_table(name)
    commit_cycle(spark.createDataFrame(rows), target, table, CycleStep(3, 4), {})
    assert pipeline.lake.system_table(name).scan().count() == 4


def test_expiry_keeps_what_shows_which_replays_are_taken(
    spark: "SparkSession", session_lake: "LakeSettings"
) -> None:
    """Those since the one that the log names stay, however many: an unfinished cycle may name any of them."""
    pipeline = with_records(session_lake, cycles=1)
    lake = pipeline.lake
    log = lake.system_table(LOG)
    nothing = log.schema().as_arrow().empty_table()

    def take(cycle: int) -> None:
        taken = head(lake.system_table(QUARANTINE))
        assert taken is not None
        log.append(nothing, snapshot_properties={CYCLE: str(cycle), TAKEN: str(taken.snapshot_id)})

    take(2)
    newest = pipeline.settings.maintenance.keep_snapshots
    for micros in range(newest // 2 + 5):
        mark_replayed(lake, {(1, "1/1"): ReplayMark(micros + 1, 1, ReplaySource.RECORDS)})
    before = len(lake.system_table(QUARANTINE).metadata.snapshots)
    later_micros = clock_micros() + 2 * READING_S * 1_000_000
    for is_taken, left in ((False, before), (True, newest)):
        if is_taken:
            take(3)
        expire_system_table(pipeline, spark, QUARANTINE, later_micros, thorough=True)
        table = lake.system_table(QUARANTINE)
        assert len(table.metadata.snapshots) == left
        untaken = [record.name for record in untaken_records(lake, table, log.refresh())]
        assert untaken == ([] if is_taken else ["1"])
