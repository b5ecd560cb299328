"""A window of raw records is judged by the tables that it may change, and by no others."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import DELETION_MARKERS, LOG, QUARANTINE, RAW
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering import change_streams, events, log_commit, order
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.ordering.strategy import Window
from cdc_platform.spark.log import event_order
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline as make_event_pipeline
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import START, data_change, feed, make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: Final = tuple(table(name, {"id": "INT64"}, {"a": "INT64"}) for name in ("t", "u", "v"))
NAMES: Final = ((1, "first"), (2, "second"))
LATE: Final = QuarantinedRecord(1, "why", "", START, "x", "x/00000000", table=None, record=None)


def insert(name: str | None, at_micros: int) -> RawRow:
    """Return the record of an inserted row; one that is malformed may not say of which table."""
    mod = ({"id": "1"}, {"a": "1"})
    record = data_change(name or "", ModType.INSERT, mod, at_micros=at_micros, transaction=str(at_micros))
    return {**record, "table_name": name}


def window_of(pipeline: Pipeline, until_micros: int, *late: QuarantinedRecord) -> Window:
    """Return the window of a pipeline's records after the first one's moment."""
    raw, quarantine, log = map(pipeline.lake.system_table, (RAW, QUARANTINE, LOG))
    mark = replace(read_mark(log), position_micros=START)
    return Window(raw, quarantine, log, mark, 1, until_micros, late)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline that has read a record of each table, each a moment after the other, and one of no table."""
    folder: Path = tmp_path_factory.mktemp("lake")
    pipeline = make_pipeline(LakeSettings(str(folder)), TABLES)
    records = [insert(name, START + number) for number, name in enumerate(("t", "u", None, "gone", "v"))]
    feed(pipeline, START + 10, *records)
    return pipeline


@pytest.mark.parametrize(
    ("until", "late", "expected"),
    [
        (0, (), ""),
        (1, (), "u"),
        (2, (), "u"),
        (3, (), "u"),
        (4, (), "uv"),
        (1, (replace(LATE, table="t"),), "tu"),
        (1, (LATE,), "tuv"),
    ],
)
def test_tables_that_a_window_may_change(
    pipeline: Pipeline, until: int, late: Sequence[QuarantinedRecord], expected: str
) -> None:
    """Known ones that its records name, and all of them where a late record does not say which it is of."""
    window = window_of(pipeline, START + until, *late)
    assert [*expected] == [schema.name for schema in window.tables_among(TABLES)]


def test_replayed_transactions_share_the_ranges_of_a_window(pipeline: Pipeline) -> None:
    """They have places in the order, in proportion to their number, though the window's files lack them."""
    replayed = [replace(LATE, moment_micros=START - 1_000 + number) for number in range(1_000)]
    window = window_of(pipeline, START + 4, *replayed)
    expected = [START - 1_000 + number for number in range(0, 1_000, window.content.rows_per_place)]
    assert expected == [micros for micros, _ in window.places if micros < START]
    assert len(window.places) > len(expected)


def note_tables(monkeypatch: pytest.MonkeyPatch, module: Any, function: str) -> list[list[str]]:
    """Return a list that takes the names of the tables with which a module orders records from now on."""
    noted: list[list[str]] = []
    order = getattr(module, function)

    def note(*arguments: Any) -> Any:
        tables: Sequence[TableSchema] = arguments[3]
        noted.append(sorted(schema.name for schema in tables))
        return order(*arguments)

    monkeypatch.setattr(module, function, note)
    return noted


@pytest.mark.integration
def test_a_change_stream_is_ordered_by_the_tables_of_the_window(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand tables, the query that looks for faults has those of which there are records."""
    pipeline = make_pipeline(session_lake, TABLES)
    noted = note_tables(monkeypatch, change_streams, "order_records")
    for number, name in enumerate(("u", "v")):
        feed(pipeline, START + number, insert(name, START + number))
        order_changes(pipeline, spark)
    assert noted == [["u"], ["v"]]


@pytest.mark.integration
def test_events_are_ordered_by_the_tables_of_the_window(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is that of a source which hands out events."""
    folder, pipeline = StreamFolder(tmp_path), make_event_pipeline(session_lake, tmp_path)
    folder.write([MadeEvent(name, name, "INSERT", 1, {"id": 1}) for name in ("users", "orders")])
    pipeline = sync(pipeline, spark)
    noted = note_tables(monkeypatch, events, "order_events")
    folder.write([MadeEvent("later", "users", "INSERT", 2, {"id": 2})])
    sync(pipeline, spark)
    assert noted == [["users"]]


def sync_in_cycles(
    lake: LakeSettings, folder: Path, spark: "SparkSession", *, has_checks: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Return the log and the deletion markers of events in three cycles, of which the last repeats two."""
    stream, pipeline = StreamFolder(folder), make_event_pipeline(lake, folder)
    first, second = (MadeEvent(name, "users", "INSERT", place, {"id": place}) for place, name in NAMES)
    deleted = MadeEvent("deleted", "users", "DELETE", 3, {"id": 1})
    again = MadeEvent("again", "users", "INSERT", 4, {"id": 1})
    for written in ([first], [second, deleted], [second, again, again]):
        stream.write(written)
        pipeline = sync(pipeline, spark)
    assert not has_checks or failed_checks(pipeline, spark) == {}
    tables = {name: pipeline.lake.system_table(name).scan().to_arrow() for name in (LOG, DELETION_MARKERS)}
    unlike = {"ordinal", "commit_timestamp", "partition_token"}
    return {
        name: rows.sort_by([("cycle", "ascending"), ("ordering_key", "ascending")])
        .drop_columns(sorted(unlike & {*rows.column_names}))
        .to_pylist()
        for name, rows in tables.items()
    }


@pytest.mark.integration
@pytest.mark.usefixtures("many_tasks")
def test_events_of_a_large_window_enter_the_log_as_few_do(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks write them, and finalise those of a cycle only if one of them comes twice in it."""
    few = sync_in_cycles(session_lake, tmp_path / "few", spark)
    finalised: list[int] = []

    def finalise(*arguments: Any) -> Any:
        finalised.append(arguments[2].cycle)
        return plainly(*arguments)

    plainly = events.Events.finalise
    monkeypatch.setattr(events.Events, "finalise", finalise)
    monkeypatch.setattr(log_commit, "MAX_BYTES", -1)
    for module in (order, events, event_order):
        monkeypatch.setattr(module, "SINGLE_TASK_RECORDS", 0)
    assert sync_in_cycles(session_lake, tmp_path / "many", spark, has_checks=True) == few
    assert len(finalised) == 1
