"""JSON files get their types from a schema file, or from an Avro file, of their `schema_key`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.lineage import ChildAnnouncement, advance, begin
from cdc_platform.model.stream.read_windows import ReadRequest, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.source import DatastreamSource
from cdc_platform.sources.loading import read_tasks
from cdc_platform_tests.unified_types import avro_file, event_schema, json_line

KEY = "a" * 40
SCHEMA = event_schema(
    [
        ("c0", "long"),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}),
        ("day", {"type": "int", "logicalType": "date"}),
    ]
)
LINE = json_line(1, {"c0": "1", "price": "1.50", "day": '"2024-02-29"'}).encode()
EXACT = {"c0": "INT64", "price": "DECIMAL", "day": "DATE"}
GUESSED = {"c0": "INT64", "price": "NUMERIC", "day": "STRING"}


def put(folder: Path, name: str, data: bytes) -> Path:
    """Write a file of the object `s_t`, and return its path."""
    path = folder / "s_t/2026/01/31/08/00" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that Spark gets of all files of the folder."""
    source = DatastreamSource(DatastreamSettings(str(folder)))
    announced = [ChildAnnouncement(1, 2, "s_t", ("s_t",))]
    root = [WindowReport(ROOT_TOKEN, 0, 5, WindowOutcome.COMPLETE)]
    lineage = advance(begin(1), 1, root, announced)
    plan = source.plan(lineage, ReadRequest(10), dict)
    return [row for batch in read_tasks(source.plan_tasks(2, plan, 2)) for row in batch.to_pylist()]


def types_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of the columns of a raw record."""
    return {column["name"]: column["type"]["code"] for column in json.loads(row["column_types"])}


def events(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that are events, by their file."""
    records = [row for row in rows if row["kind"] == RecordKind.DATA_CHANGE.value]
    return sorted(records, key=lambda row: str(row["event"]["origin"]))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"{KEY}.avsc", json.dumps(SCHEMA).encode()),
        (f"{KEY}_postgresql-cdc_1_2_3.schema", json.dumps(SCHEMA).encode()),
        (f"{KEY}_postgresql-cdc_1_2_3.avro", avro_file(SCHEMA, [{"c0": 7, "price": b"\x01", "day": 3}])),
    ],
)
def test_types_are_borrowed(tmp_path: Path, name: str, data: bytes) -> None:
    """Decimals and dates are exact then, and described as such; else they are texts."""
    put(tmp_path, f"{KEY}_postgresql-cdc_1_2_4.jsonl", LINE)
    (row,) = events(read(tmp_path))
    assert types_of(row) == GUESSED
    put(tmp_path, name, data)
    assert [EXACT] * (1 + name.endswith(".avro")) == [types_of(row) for row in events(read(tmp_path))]
    (table,) = DatastreamSource(DatastreamSettings(str(tmp_path))).list_tables()
    assert {column.name: column.type.code for column in table.columns} == EXACT
    assert json.loads(events(read(tmp_path))[-1]["mods"][0]["new_values"])["price"] == "1.50"


@pytest.mark.parametrize("name", [f"{KEY}_cdc_1_2_4.avro", f"{KEY}_cdc_1_2_4.avro.json"])
def test_json_borrows_types_whatever_its_file_is_called(tmp_path: Path, name: str) -> None:
    """The content of a file decides how it is read, whether it needs a schema, and how its texts are read."""
    origin = put(tmp_path, name, LINE)
    assert [types_of(row) for row in events(read(tmp_path))] == [GUESSED]
    put(tmp_path, f"{KEY}.avsc", json.dumps(SCHEMA).encode())
    assert [types_of(row) for row in events(read(tmp_path))] == [EXACT]
    (table,) = DatastreamSource(DatastreamSettings(str(tmp_path))).list_tables()
    assert {column.name: column.type.code for column in table.columns} == EXACT
    (event,) = DatastreamSource(DatastreamSettings(str(tmp_path))).decode_again(str(origin), LINE.decode(), 0)
    assert isinstance(event, SourceEvent)
    assert '"price":"1.50"' in (event.new_values or "")


def test_avro_needs_no_schema_whatever_its_file_is_called(tmp_path: Path) -> None:
    """A schema file that is none keeps no Avro from being read; its texts need the file that is gone."""
    rows = [{"c0": 7, "price": b"\x01", "day": 3}, {"c0": 7, "price": b"\x7f\xff\xff", "day": 3}]
    origin = put(tmp_path, f"{KEY}_postgresql-cdc_1_2_4.jsonl", avro_file(SCHEMA, rows))
    put(tmp_path, f"{KEY}.avsc", b'{"type": ')
    good, bad = events(read(tmp_path))
    assert types_of(good) == EXACT
    source = DatastreamSource(DatastreamSettings(str(tmp_path)))
    (fault,) = source.decode_again(str(origin), bad["event"]["text"], 1)
    assert isinstance(fault, FaultyEvent)
    assert fault.reason.startswith("The event's Avro schema is gone with its file")
    (fault,) = source.decode_again(str(origin), '{"events_read":1}', None)
    assert isinstance(fault, FaultyEvent)
    assert fault.reason.startswith("The file is gone")


def test_texts_of_events_borrow_types(tmp_path: Path) -> None:
    """The text of an event whose file is gone gets the types of other events with its schema key."""
    source = DatastreamSource(DatastreamSettings(str(tmp_path)))
    origin = str(tmp_path / f"s_t/2026/01/31/08/00/{KEY}_postgresql-cdc_1_2_4.jsonl")
    schema = put(tmp_path, f"{KEY}.avsc", json.dumps(SCHEMA).encode())
    (event,) = source.decode_again(origin, LINE.decode(), 0)
    assert isinstance(event, SourceEvent)
    types = {column["name"]: column["type"]["code"] for column in json.loads(event.column_types)}
    assert types == EXACT
    assert '"price":"1.50"' in (event.new_values or "")

    schema.write_bytes(b"{")
    source.close()
    (fault,) = source.decode_again(origin, LINE.decode(), 0)
    assert isinstance(fault, FaultyEvent)
    assert ("The schema file", LINE.decode()) == (fault.reason[:15], fault.text)


def test_only_the_own_key_counts(tmp_path: Path) -> None:
    """A schema of another key, or an Avro file without events, gives no types."""
    put(tmp_path, f"{KEY}_postgresql-cdc_1_2_4.jsonl", LINE)
    put(tmp_path, f"{'b' * 40}.avsc", json.dumps(SCHEMA).encode())
    put(tmp_path, f"{KEY}_postgresql-cdc_1_2_3.avro", avro_file(SCHEMA, []))
    assert [types_of(row) for row in events(read(tmp_path))] == [GUESSED]


def test_a_schema_file_that_is_none_is_reported(tmp_path: Path) -> None:
    """Its JSON files are not read until it is mended, since their types would change; others are."""
    put(tmp_path, f"{KEY}_postgresql-cdc_1_2_4.jsonl", LINE)
    put(tmp_path, "other_1.jsonl", LINE)
    bad = put(tmp_path, f"{KEY}.avsc", b'{"type": ')
    rows = read(tmp_path)
    assert [Path(row["event"]["origin"]).name for row in events(rows)] == ["other_1.jsonl"]
    reports = [json.loads(row["event"]["metadata"]) for row in rows if row["kind"] == RecordKind.FILE.value]
    (error,) = [report["error"] for report in reports if not report["is_read"]]
    assert error.startswith("RecordUnreadable: The schema file")
    assert str(bad) in error
    bad.write_bytes(json.dumps(SCHEMA).encode())
    assert [types_of(row) for row in events(read(tmp_path))] == [EXACT, GUESSED]
