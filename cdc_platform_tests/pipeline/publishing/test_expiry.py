"""Expiry removes what no kept cut needs, and nothing else."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.stored_names import DELETION_MARKERS, LINEAGE, LOG
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.publishing import expiry
from cdc_platform.pipeline.publishing.expiry import (
    READING_S,
    age_of_system_table,
    expire_system_table,
    forget_deletion_markers,
)
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.pipeline.bank import bank_pipeline
from cdc_platform_tests.support.cycles import found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.interruptions import interrupt_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.opened.pipeline import Pipeline

NOW_MICROS: Final = 1_800_000_000_000_000
YEARS_AGO_S: Final = -3 * 365 * 86400
DAY_MICROS: Final = 86_400_000_000


def old_user(uuid: str, change: str, position: int) -> MadeEvent:
    """Return an event of one user that was made years ago."""
    return MadeEvent(uuid, "users", change, position, {"id": 1, "name": uuid}, at_s=YEARS_AGO_S + position)


def count_deletion_markers(pipeline: "Pipeline") -> int:
    """Return how many deletions are remembered."""
    return pipeline.lake.system_table(DELETION_MARKERS).scan().count()


@pytest.mark.integration
def test_deletion_markers_stay_as_long_as_older_events_may_come(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A deletion of years ago is remembered from when it was read, since its backlog is read meanwhile."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, deletion_marker_retention_s=8 * 86400)
    folder.write([old_user("deleted", "DELETE", 200)])
    pipeline = sync(pipeline, spark)
    maintain_lake(pipeline, spark, thorough=True)
    folder.write([old_user("late", "INSERT", 100)])
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "users") == []

    now_micros = clock_micros()
    forget_deletion_markers(pipeline, spark, now_micros + 7 * DAY_MICROS)
    assert count_deletion_markers(pipeline) == 1
    forget_deletion_markers(pipeline, spark, now_micros + 9 * DAY_MICROS)
    assert count_deletion_markers(pipeline) == 0


@pytest.mark.integration
def test_snapshots_that_another_process_has_expired_are_a_conflict(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's error for them, about the size of an array, says nothing of the other process."""
    pipeline = bank_pipeline(session_lake)
    lineage = pipeline.lake.system_table(LINEAGE)
    for _ in range(40):
        lineage.append(lineage.schema().as_arrow().empty_table())
    later_micros = clock_micros() + READING_S * 1_000_000 + DAY_MICROS
    rival = partial(expire_system_table, pipeline, spark, LINEAGE, later_micros, thorough=True)
    interrupt_once(monkeypatch, expiry, "expire_snapshots", rival)
    with pytest.raises(CommitConflict, match="Another process has expired snapshots"):
        expire_system_table(pipeline, spark, LINEAGE, later_micros, thorough=True)
    assert rival() == 0


@pytest.mark.parametrize(
    ("old", "kept", "is_due"),
    [(119, 50, False), (120, 50, True), (199, 400, False), (200, 400, True)],
)
def test_expiry_waits_for_half_as_many_snapshots_as_it_keeps(
    old: int, kept: int, is_due: bool, tmp_path: Path
) -> None:
    """The cost of an expiry grows with the snapshots that stay, so it waits for more that go."""
    pipeline = bank_pipeline(LakeSettings(str(tmp_path)))
    table = pipeline.lake.system_table(LOG)
    now_ms = NOW_MICROS // 1000
    times = [*[now_ms - READING_S * 1000 - 1] * old, *[now_ms] * kept]
    snapshots = [
        Snapshot.model_validate({"snapshot-id": number, "timestamp-ms": time_ms, "manifest-list": "a"})
        for number, time_ms in enumerate(times, start=1)
    ]
    table.metadata = table.metadata.model_copy(update={"snapshots": snapshots})

    assert is_due == (age_of_system_table(pipeline, LOG, table, NOW_MICROS) >= 1)
