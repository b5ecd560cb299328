"""Files of two databases below one folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.support.cycles import found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.pipelines import quarantined_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def put(folder: StreamFolder, position: int, database: str, change: str) -> None:
    """Write SQL Server's event of the row 1 of `dbo.orders` of a database."""
    event = MadeEvent(f"o{position}", "orders", change, position, {"id": 1, "v": database}).to_json()
    place = {"schema": "dbo", "database": database, "lsn": f"00000025:{position:08}:0003", "tx_id": "1"}
    event |= {"read_method": "sqlserver-cdc", "source_metadata": event["source_metadata"] | place}
    folder.put(folder.path / database / f"dbo_orders/2027/01/15/{position}.jsonl", json.dumps(event).encode())


def test_rows_of_two_databases_do_not_mix(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A table belongs to the database of its first event, unless `table_name` joins them."""
    folder = StreamFolder(tmp_path)
    source = DatastreamSettings(str(tmp_path))
    pipeline = open_pipeline(PipelineSettings("two_databases", source, session_lake))
    put(folder, 20, "second", "INSERT")
    put(folder, 10, "first", "INSERT")
    pipeline = sync(pipeline, spark)
    put(folder, 30, "second", "DELETE")
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "dbo.orders") == [{"id": 1, "v": "first"}]
    (reason,) = {row["reason"] for row in quarantined_rows(pipeline)}
    assert "`dbo.orders` come from the database `first`, and this one from `second`" in reason
    one_table = replace(source, table_name="{schema}.{table}")
    pipeline = open_pipeline(replace(pipeline.settings, source=one_table))
    replay_records(pipeline, QuarantineFilter())
    assert found_rows(sync(pipeline, spark), "dbo.orders") == []
