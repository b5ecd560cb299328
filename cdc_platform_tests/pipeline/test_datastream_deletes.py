"""Deletes of Datastream's whose key stands in their metadata, before the rows that they delete."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.pipelines import quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KEYS: Final[dict[str, tuple[Any, Any]]] = {
    # By table: the key of a row that is deleted, and that of one that stays.
    "price": (1.5, 2),
    "moment": ("2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
    "large": (2**53 + 1, 2),
    "small": (1, 2),
}
TYPES: Final = {"shop.price": {"id": "DECIMAL(10,2)"}, "shop.moment": {"id": "TIMESTAMP"}}


def delete_by_metadata(folder: StreamFolder, table: str, position: int, key: Any) -> None:
    """Write a delete without a payload as a separate file."""
    event = MadeEvent(f"{table}-{position}", table, "DELETE", position).to_json()
    event["source_metadata"]["primary_keys"] = {"id": key}
    path = folder.path / f"shop_{table}/2027/01/15/08/00/{position}.jsonl"
    folder.put(path, f"{json.dumps({**event, 'payload': None})}\n".encode())


def insert(folder: StreamFolder, table: str, position: int, key: Any) -> None:
    """Write an insert as a separate file."""
    row = {"id": key, "v": position}
    event = MadeEvent(f"{table}-{position}", table, "INSERT", position, row)
    folder.write([event], name=f"{position}.jsonl")


def test_a_key_of_the_metadata_is_that_of_the_payload(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Metadata know no types and write keys in their own way; the older insert brings nothing back."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, columns=TYPES)
    for table, (gone, remaining) in KEYS.items():
        insert(folder, table, 100, remaining)
        delete_by_metadata(folder, table, 200, gone)
    pipeline = sync(pipeline, spark)
    for table, (gone, _) in KEYS.items():
        insert(folder, table, 150, gone)
    pipeline = sync(pipeline, spark)
    assert {table: [100] for table in KEYS} == {
        table: [row["v"] for row in rows_of(pipeline, table)] for table in KEYS
    }
    assert quarantined_rows(pipeline) == []
    assert failed_checks(pipeline, spark) == {}


def test_a_delete_may_be_all_that_a_lake_has(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A table is created by the first event that shows its columns; earlier deletes count then."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path)
    delete_by_metadata(folder, "small", 200, 1)
    pipeline = sync(pipeline, spark)
    assert pipeline.tables == ()
    insert(folder, "small", 150, 1)
    insert(folder, "small", 151, 2)
    pipeline = sync(pipeline, spark)
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "small")] == [(2, 151)]
    assert failed_checks(pipeline, spark) == {}
