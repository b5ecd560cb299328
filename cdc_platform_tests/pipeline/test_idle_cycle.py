"""Cycles of files that find nothing to read."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.datastream.files import StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.debezium.pipelines import append
from cdc_platform_tests.support.hostile.debezium import inserted
from cdc_platform_tests.support.pipelines import rows_of, state_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Insert = Callable[[int], object]


def datastream(lake: LakeSettings, path: Path) -> tuple[Pipeline, str, Insert]:
    """Return a pipeline, its table, and what inserts a row at its source: in a separate file."""
    folder = StreamFolder(path)
    return make_pipeline(lake, path), "users", lambda key: folder.write([user(f"u{key}", "INSERT", key, key)])


def debezium(lake: LakeSettings, path: Path) -> tuple[Pipeline, str, Insert]:
    """Return the same with one file that grows."""
    settings = PipelineSettings("idle_debezium", settings_with(input=FilesInput(str(path))), lake)
    file = path / "events.jsonl"
    return open_pipeline(settings), TABLE, lambda key: append(file, [f"{inserted(key)}\n"])


@pytest.mark.parametrize("source", [datastream, debezium])
def test_a_cycle_that_finds_no_event_changes_nothing(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    source: Callable[[LakeSettings, Path], tuple[Pipeline, str, Insert]],
) -> None:
    """Where no file is new and none has grown, a cycle commits to no table, and the next event is read."""
    pipeline, table, insert = source(session_lake, tmp_path)
    for key in (1, 2):
        insert(key)
        pipeline = sync(pipeline, spark)
        before = state_of(pipeline)
        assert not run_cycle(pipeline, spark).read.committed
        assert before == state_of(pipeline)
        assert [row["id"] for row in rows_of(pipeline, table)] == [*range(1, key + 1)]
