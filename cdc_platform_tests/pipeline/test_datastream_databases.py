"""Files of two databases below one folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def put(folder: StreamFolder, position: int, database: str, change: str, **metadata: Any) -> None:
    """Write SQL Server's event of the row 1 of `dbo.orders` of a database.

    If the metadata has the row's key, the event has no payload.
    """
    place = {"lsn": f"00000025:{position:08}:0003", "tx_id": "1", **metadata}
    event = event_of(database, "sqlserver-cdc", change, position, {"id": 1, "v": database}, **place)
    if metadata:
        event["payload"] = None
    put_event(folder, event)


def put_oracle(
    folder: StreamFolder, scn: int, database: str, row_id: str, row: dict[str, Any] | None = None
) -> None:
    """Write Oracle's insert of a row of `dbo.orders` of a database; without a row, the rollback of one."""
    place = {"scn": scn, "rs_id": "0x1.2.3", "ssn": 0, "tx_id": str(scn), "row_id": row_id}
    change = "DELETE" if row is None else "INSERT"
    put_event(
        folder, event_of(database, "oracle-cdc-logminer", change, scn, row or {"ROWID": row_id}, **place)
    )


def event_of(
    database: str, method: str, change: str, position: int, row: dict[str, Any], **metadata: Any
) -> dict[str, Any]:
    """Return an event of `dbo.orders` of a database."""
    event = MadeEvent(f"o{position}", "orders", change, position, row).to_json()
    place = {"schema": "dbo", "database": database, **metadata}
    return event | {"read_method": method, "source_metadata": event["source_metadata"] | place}


def put_event(folder: StreamFolder, event: dict[str, Any]) -> None:
    """Write an event as a separate file of its database."""
    folder.put(
        folder.path / event["source_metadata"]["database"] / f"dbo_orders/2027/01/15/{event['uuid']}.jsonl",
        json.dumps(event).encode(),
    )


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
    put(folder, 40, "second", "DELETE", primary_keys={"id": 1})
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "dbo.orders") == [{"id": 1, "v": "first"}]
    assert len(quarantined_rows(pipeline)) == 3
    (reason,) = {row["reason"] for row in quarantined_rows(pipeline)}
    assert "`dbo.orders` come from the database `first`, and this one from `second`" in reason
    one_table = replace(source, table_name="{schema}.{table}")
    pipeline = open_pipeline(replace(pipeline.settings, source=one_table))
    replay_records(pipeline, QuarantineFilter())
    assert found_rows(sync(pipeline, spark), "dbo.orders") == []


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, [{"id": 2, "v": "first"}]),
        ("{schema}.{table}", [{"id": 2, "v": "first"}, {"id": 3, "v": "second"}]),
    ],
)
def test_an_address_is_that_of_one_database(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    template: str | None,
    expected: list[dict[str, Any]],
) -> None:
    """Two databases of Oracle may have equal ROWIDs; a rollback takes away the row of its own database."""
    folder = StreamFolder(tmp_path)
    source = DatastreamSettings(str(tmp_path), table_name=template)
    name = "one_address" if template is None else "one_address_of_shards"
    pipeline = open_pipeline(PipelineSettings(name, source, session_lake))
    put_oracle(folder, 10, "first", "AAA", {"id": 1, "v": "first"})
    put_oracle(folder, 11, "first", "BBB", {"id": 2, "v": "first"})
    put_oracle(folder, 20, "second", "AAA", {"id": 3, "v": "second"})
    put_oracle(folder, 21, "second", "CCC", {"id": 4, "v": "second"})
    put_oracle(folder, 30, "first", "AAA")
    put_oracle(folder, 31, "second", "BBB")
    put_oracle(folder, 32, "SECOND", "CCC")
    pipeline = sync(pipeline, spark)
    assert expected == found_rows(pipeline, "dbo.orders")
