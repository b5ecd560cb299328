"""Expiry removes what no kept cut needs, and nothing else."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake import DELETION_MARKERS
from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.pipeline.publishing.expire import forget_deletion_markers
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.support.cycles import found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.pipeline.opened.pipeline import Pipeline

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

    now_micros = time.time_ns() // 1000
    forget_deletion_markers(pipeline, spark, now_micros + 7 * DAY_MICROS)
    assert count_deletion_markers(pipeline) == 1
    forget_deletion_markers(pipeline, spark, now_micros + 9 * DAY_MICROS)
    assert count_deletion_markers(pipeline) == 0
