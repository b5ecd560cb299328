"""Schemas that change from file to file: the table follows, or stays as it is, whichever file comes first."""

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.settings import LakeSettings
from cdc_platform.pipeline.file_checks import check_files
from cdc_platform.pipeline.follow import is_idle
from cdc_platform.pipeline.pipeline import open_pipeline
from cdc_platform.pipeline.tick import run_tick
from cdc_platform.pipeline.verdict import EVERYTHING
from cdc_platform_tests.datastream_files import MadeEvent, StreamFolder
from cdc_platform_tests.pipeline.test_datastream import failed_checks, found_rows, make_pipeline, sync
from cdc_platform_tests.pipelines import quarantined_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

PRICE: Final = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "a1": {"id": "long", "amount": "long", "note": "string"},
    "a2": {"id": "long", "amount": "long", "added": "string", "note": "string"},
    "a3": {"id": "long", "amount": PRICE, "note": "string"},
    "a4": {"id": "long", "amount": PRICE, "comment": "string"},
}


def write_schemas(folder: StreamFolder) -> None:
    """Write a schema file for each `schema_key`."""
    for key, columns in SHAPES.items():
        fields = [{"name": name, "type": ["null", kind]} for name, kind in columns.items()]
        schema = json.dumps({"type": "record", "name": "payload", "fields": fields})
        folder.put(folder.path / f"schemas/{key}.avsc", schema.encode())


def write(folder: StreamFolder, table: str, key: str, position: int, *values: Any) -> None:
    """Write an insert of a shape as a file of its own; the first value is the row's key."""
    row = dict(zip(SHAPES[key], values, strict=True))
    event = MadeEvent(f"{table}-{position}", table, "INSERT", position, row, key)
    folder.write([event], name=f"{key}_mysql-cdc-binlog_{position}.jsonl")


def test_tables_follow_or_stay(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """One batch has several schemas, and old ones come late: columns are added and widened only.

    A frozen table leaves new columns out, and holds what does not fit its columns; with `quarantine` events
    of any other schema are held.
    """
    folder = StreamFolder(tmp_path)
    policies = {"frozen": "freeze", "held": "quarantine"}
    pipeline = make_pipeline(session_lake, tmp_path, schema_policy=policies)
    write_schemas(folder)
    write(folder, "free", "a3", 150, 3, "7.25", "n3")
    write(folder, "free", "a1", 100, 1, 5, "n1")
    for table in policies:
        write(folder, table, "a2", 200, 2, 6, "x", "n2")
        write(folder, table, "a1", 100, 1, 5, "n1")
    pipeline = sync(pipeline, spark)
    write(folder, "free", "a1", 120, 2, 6, "n2")
    write(folder, "free", "a4", 300, 4, "1.50", "c4")
    write(folder, "free", "a2", 250, 5, 8, "x", "n5")
    for table in policies:
        write(folder, table, "a3", 300, 3, "7.25", "n3")
        write(folder, table, "a1", 120, 4, 8, "n4")
    pipeline = sync(pipeline, spark)
    rest: dict[str, Any] = {"added": None, "comment": None}
    free = [
        {"id": 1, "amount": Decimal("5.00"), "note": "n1", **rest},
        {"id": 2, "amount": Decimal("6.00"), "note": "n2", **rest},
        {"id": 3, "amount": Decimal("7.25"), "note": "n3", **rest},
        {"id": 4, "amount": Decimal("1.50"), "note": None, "added": None, "comment": "c4"},
        {"id": 5, "amount": Decimal("8.00"), "note": "n5", "added": "x", "comment": None},
    ]
    found = [{name: row[name] for name in free[0]} for row in found_rows(pipeline, "free")]
    assert found == free
    first, last = {"id": 1, "amount": 5, "note": "n1"}, {"id": 4, "amount": 8, "note": "n4"}
    assert found_rows(pipeline, "frozen") == [first, {"id": 2, "amount": 6, "note": "n2"}, last]
    assert found_rows(pipeline, "held") == [first, last]
    reasons = sorted(
        (row["table_name"], row["reason"].partition(": ")[2]) for row in quarantined_rows(pipeline)
    )
    is_wider = "`amount` is DECIMAL(10,2), and in the table INT64"
    assert [("frozen", is_wider), ("held", "`added` is new"), ("held", is_wider)] == reasons
    assert failed_checks(pipeline, spark) == {}


def test_a_file_that_cannot_be_read_is_named(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The others are read, nothing more is expected of it, and it is read once it can be."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path)
    write_schemas(folder)
    bad = folder.put(folder.path / "schemas/b1.avsc", b"{")
    write(folder, "free", "a1", 100, 1, 5, "n1")
    event = MadeEvent("u", "free", "INSERT", 110, {"id": 2})
    unread = folder.write([event], name="b1_mysql-cdc-binlog_1.jsonl")
    outcome = run_tick(pipeline, spark)
    verdict = check_files(pipeline, spark, EVERYTHING)
    assert (verdict.passed, verdict.facts) == (False, {"unread_files": 1})
    assert str(unread) in verdict.summary
    assert str(bad) in verdict.summary
    outcome = run_tick(open_pipeline(pipeline.settings), spark)
    # So `sync` ends although a tick would ask for the file again.
    assert (outcome.read.committed, is_idle(outcome)) == (True, True)
    assert [row["id"] for row in found_rows(pipeline, "free")] == [1]
    bad.unlink()
    pipeline = sync(pipeline, spark)
    assert [row["id"] for row in found_rows(pipeline, "free")] == [1, 2]
    assert check_files(pipeline, spark, EVERYTHING).passed
