"""Splits that Spark's tasks decode: the raw records of one decoder, and nothing is kept behind them."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.sources.debezium.files import reader
from cdc_platform.sources.debezium.files.decoding import event_files
from cdc_platform.sources.debezium.files.reader import MAX_LINES, FilesReading
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.footprints.footprint import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def reading(settings: DebeziumSettings, split_lines: int, read_micros: int = 2) -> FilesReading:
    """Return the reading of all files of a stream that begins."""
    store = event_files(settings)
    files = sorted(store.list_files(), key=lambda file: file.path)
    inputs = {"files": files, "lines": {file.path: 0 for file in files}, "forgotten": []}
    plan = ReadPlan((ReadWindow("", 1, read_micros),), {**inputs, "state": None, "passed": None})
    return FilesReading(store, settings, 1, plan, split_lines)


def written(folder: Path) -> DebeziumSettings:
    """Write two files: transactions, an event that cannot be used, one that waits, and what is behind it."""
    connector = Connector()
    for key in range(20):
        connector.whole(key, key + 100)
    connector.begin()
    connector.insert(300, "much")
    connector.end()
    connector.emit("YQ==")
    half = len(connector.lines) // 2
    connector.begin()
    connector.insert(400)
    (folder / "a.jsonl").write_text("\n".join([*connector.lines[:half], ""]), encoding="utf-8")
    (folder / "b.jsonl").write_text("\n".join([*connector.lines[half:], ""]), encoding="utf-8")
    return settings_with(input=FilesInput(str(folder)), has_transaction_topic=True)


def texts(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Return the rows of batches, sorted."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def test_tasks_come_to_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    """Many splits give the raw records that one gives; no frame is kept once they are committed."""
    settings, session = written(tmp_path), Session.of(spark)
    kept = session.measure().cached_plans
    expected = texts(reading(settings, MAX_LINES).locally())
    with ExitStack() as frames:
        records = reading(settings, 5).by_tasks(spark, 2, frames)
        by_tasks = records.through(iter, RAW_EVENT_RECORDS).toArrow().to_batches()
        assert expected == texts([*by_tasks, *records.local_batches])
        assert session.measure().cached_plans > kept
    assert kept == session.measure().cached_plans
    assert '"fault": "' in "".join(expected)


def test_the_rest_of_a_file_is_as_old_as_what_was_read(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that grows was written just now: what a cycle leaves of it counts from its newest commit."""
    settings, read_micros = written(tmp_path), 1_800_000_000_000_000
    fifth_commit_micros = (1_700_000_000_000 + Connector().transaction + 5) * 1000
    for max_lines, age_micros in ((20, fifth_commit_micros), (MAX_LINES, None)):
        monkeypatch.setattr(reader, "MAX_LINES", max_lines)
        with ExitStack() as frames:
            records = reading(settings, 4, read_micros).by_tasks(spark, 2, frames)
            assert age_micros == records.left_since_micros
