"""Replaying what lies in quarantine: from its files, or from its texts where they are gone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import (
    count_quarantined_records,
    load_quarantine,
    load_replays,
)
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter, ReplaySource
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.log_checks import check_nothing_lost
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.pipelines import log_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

BAD_LINE = b'{"uuid": "x", \n'
NEW_YEAR_S: Final = -14 * 86400 - 8 * 3600
"""Of 2027, by the clock of the made-up source."""
KEYLESS: Final[dict[str, Any]] = {"primary_keys": []}


def with_source(pipeline: Pipeline, **changes: Any) -> Pipeline:
    """Return the pipeline with other settings of its source, as after an edit of its file."""
    source = pipeline.settings.source
    assert isinstance(source, DatastreamSettings)
    return open_pipeline(replace(pipeline.settings, source=replace(source, **changes)))


def line(uuid: str, key: int, position: int, at_s: int | None = None, **metadata: Any) -> bytes:
    """Return the line of an event of the table `visits`."""
    made = MadeEvent(uuid, "visits", "INSERT", position, {"id": key, "name": uuid}, at_s=at_s)
    event = made.to_json()
    event["source_metadata"] |= metadata
    return json.dumps(event).encode() + b"\n"


def is_nothing_lost(pipeline: Pipeline, spark: "SparkSession") -> bool:
    """Return whether records read are those in the log and in quarantine."""
    return check_nothing_lost(pipeline, spark, EVERYTHING).passed


def test_a_file_is_read_again(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Records that are usable now take their place behind newer rows; others come back; nothing is doubled.

    The log has had the rest of the file for longer than events may come again.
    """
    folder = StreamFolder(tmp_path)
    path = tmp_path / "shop_visits/2027/01/15/08/00/one.jsonl"
    pipeline = with_source(make_pipeline(session_lake, tmp_path), late_files_s=0.001, keyless={"*": "refuse"})
    folder.put(
        path, line("a", 1, 100, **KEYLESS) + line("b", 2, 110) + BAD_LINE + line("c", 3, 90, **KEYLESS)
    )
    folder.put(path.with_name("two.jsonl"), line("newer", 1, 200))
    pipeline = sync(pipeline, spark)
    assert found_rows(pipeline, "visits") == [{"id": 1, "name": "newer"}, {"id": 2, "name": "b"}]
    assert count_quarantined_records(pipeline.lake) == 3

    pipeline = with_source(pipeline, keyless={}, keys={"visits": ("id",)})
    outcome = replay_records(pipeline, QuarantineFilter(table="visits"))
    # One record of the file brings the others of it.
    assert ([str(path)], 3) == (list(outcome.files), len(outcome.from_files))
    assert count_quarantined_records(pipeline.lake) == 0
    assert is_nothing_lost(pipeline, spark)
    run_cycle(pipeline, spark)
    expected = [{"id": 1, "name": "newer"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
    assert expected == found_rows(pipeline, "visits")
    assert sorted(row["record_id"][-1] for row in log_rows(pipeline)) == ["a", "b", "c", "r"]
    (back,) = load_quarantine(pipeline.lake)
    assert (str(path), True) == (back.origin, back.name.endswith("#2"))

    # Asked for once more, it comes back once more, and nothing else changes.
    assert len(replay_records(pipeline, QuarantineFilter()).from_files) == 1
    run_cycle(pipeline, spark)
    assert expected == found_rows(pipeline, "visits")
    assert [record.record_id for record in load_quarantine(pipeline.lake)] == [back.record_id]
    assert failed_checks(pipeline, spark) == {}


def test_a_text_is_enough(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Texts and raw records are judged where a file is gone; of one that was broken nothing is left."""
    folder = StreamFolder(tmp_path)
    path = tmp_path / "shop_visits/2027/01/15/08/00/one.jsonl"
    pipeline = with_source(make_pipeline(session_lake, tmp_path), keyless={"*": "refuse"})
    folder.put(path.with_name("first.jsonl"), line("b", 2, 110))
    pipeline = sync(pipeline, spark)
    folder.put(path, line("a", 1, 100, **KEYLESS) + BAD_LINE + line("d", 4, 120, primary_keys=["name"]))
    folder.put(path.with_name("cut.avro"), b"Obj\x01\x04")
    pipeline = sync(pipeline, spark)
    assert count_quarantined_records(pipeline.lake) == 4, load_quarantine(pipeline.lake)
    for file in (path, path.with_name("cut.avro")):
        file.unlink()

    pipeline = with_source(pipeline, keyless={}, keys={"visits": ("id",)})
    outcome = replay_records(pipeline, QuarantineFilter())
    assert (len(outcome.from_files), len(outcome.from_texts), len(outcome.unreadable)) == (0, 3, 1)
    run_cycle(pipeline, spark)
    assert found_rows(pipeline, "visits") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    records = load_quarantine(pipeline.lake, with_replayed=True)
    assert {record.replayed_from for record in records if not record.is_open} == {ReplaySource.TEXT}
    newest = max(record.cycle for record in records)
    assert {record.reason.split("(")[0].split(";")[0] for record in records if record.cycle == newest} == {
        "The line is not JSON ",
        "The key of `visits` is id, but the event's key is name",
    }
    assert count_quarantined_records(pipeline.lake) == 3
    assert failed_checks(pipeline, spark) == {}


@pytest.mark.parametrize("is_read", [True, False])
def test_a_text_is_enough_where_the_file_lacks_the_event(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, *, is_read: bool
) -> None:
    """An event that a newer version of its file lacks is replayed, whether or not that version was read."""
    folder = StreamFolder(tmp_path)
    path = tmp_path / "shop_visits/2027/01/15/08/00/one.jsonl"
    pipeline = with_source(make_pipeline(session_lake, tmp_path), keyless={"*": "refuse"})
    folder.put(path, line("a", 1, 100, **KEYLESS) + line("b", 2, 110) + BAD_LINE)
    pipeline = sync(pipeline, spark)
    folder.put(path, line("b", 2, 110) + line("c", 3, 120))
    pipeline = sync(pipeline, spark) if is_read else pipeline
    pipeline = with_source(pipeline, keyless={}, keys={"visits": ("id",)})
    replay_records(pipeline, QuarantineFilter())
    pipeline = sync(pipeline, spark)
    assert [row["name"] for row in found_rows(pipeline, "visits")] == ["a", "b", "c"]
    assert count_quarantined_records(pipeline.lake) == 0
    assert failed_checks(pipeline, spark) == {}


def test_a_replay_at_new_year(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Replayed files and texts take their place before newer ones; nothing is retried without a request."""
    last_s = NEW_YEAR_S - 1
    folder, old = StreamFolder(tmp_path), tmp_path / "shop_visits/2026/12/31/23/59"
    pipeline = with_source(make_pipeline(session_lake, tmp_path), keyless={"*": "refuse"})
    folder.put(
        old / "gone.jsonl", line("a", 1, 100, last_s, **KEYLESS) + line("b", 2, 101, last_s, **KEYLESS)
    )
    folder.put(old / "there.jsonl", line("c", 3, 102, last_s, **KEYLESS) + BAD_LINE)
    new = line("d", 2, 103, NEW_YEAR_S) + line("e", 4, 104, NEW_YEAR_S)
    folder.put(tmp_path / "shop_visits/2027/01/01/00/00/new.jsonl", new)
    pipeline = sync(pipeline, spark)
    assert [row["id"] for row in found_rows(pipeline, "visits")] == [2, 4]
    (old / "gone.jsonl").unlink()

    pipeline = with_source(pipeline, keyless={}, keys={"visits": ("id",)})
    outcome = replay_records(pipeline, QuarantineFilter())
    assert (len(outcome.from_files), len(outcome.from_texts)) == (2, 2)
    run_cycle(pipeline, spark)
    expected = [{"id": key, "name": name} for key, name in enumerate("adce", 1)]
    assert expected == found_rows(pipeline, "visits")
    # The line that came back was judged once, and waits until somebody asks again.
    assert count_quarantined_records(pipeline.lake) == 1
    assert not run_cycle(open_pipeline(pipeline.settings), spark).read.committed
    assert failed_checks(pipeline, spark) == {}


def message(op: str, key: int, value: str, lsn: int, *, has_key: bool = True) -> str:
    """Return a line of the topic of PostgreSQL's `public.visits`."""
    source = {"connector": "postgresql", "name": "db", "db": "shop", "schema": "public", "table": "visits"}
    source |= {"snapshot": "false", "sequence": f'["{lsn - 1}","{lsn}"]'}
    place: dict[str, Any] = {"ts_ms": lsn, "txId": lsn, "lsn": lsn}
    content = {
        "before": None,
        "after": {"id": key, "v": value},
        "source": source | place,
        "op": op,
        "ts_ms": lsn,
    }
    key_of = {"key": {"id": key}} if has_key else {}
    return json.dumps({"topic": "db.public.visits", "value": content, **key_of}) + "\n"


def test_events_of_a_log_in_order_enter_it_late(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """The tables and histories that they touch are rebuilt, as if they had come in time."""
    columns = {"public.visits": {"id": "integer", "v": "text"}}
    source = DebeziumSettings(FilesInput(str(tmp_path)), columns=columns)
    options = {"public.visits": TableOptions(history=True)}
    settings = PipelineSettings("late_events", source, session_lake, table_options=options)
    lines = [
        message("c", 1, "first", 100),
        message("u", 1, "second", 200, has_key=False),
        message("c", 2, "late", 250, has_key=False),
        message("u", 1, "third", 300),
    ]
    (tmp_path / "events.jsonl").write_text("".join(lines), encoding="utf-8")
    pipeline = sync(open_pipeline(settings), spark)
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "public.visits")] == [(1, "third")]

    keys = {"public.visits": ("id",)}
    pipeline = open_pipeline(replace(settings, source=replace(source, keys=keys)))
    assert len(replay_records(pipeline, QuarantineFilter(reason="without its key")).from_texts) == 2
    run_cycle(pipeline, spark)
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "public.visits")] == [
        (1, "third"),
        (2, "late"),
    ]
    history = rows_of(pipeline, "public.visits__history")
    versions = sorted((row["valid_from"], row["v"], row[IS_CURRENT]) for row in history)
    assert [version[1:] for version in versions] == [
        ("first", False),
        ("second", False),
        ("late", True),
        ("third", True),
    ]
    assert load_quarantine(pipeline.lake) == []
    assert failed_checks(pipeline, spark) == {}


def test_a_transaction_is_replayed_whole(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound members come back with the faulty one, in one cycle, for any number of texts per cycle."""
    monkeypatch.setattr("cdc_platform.pipeline.on_demand.replay.TEXTS_OF_A_CYCLE", 1)
    connector = Connector()
    connector.whole(1)
    connector.begin()
    connector.insert(2, 5)
    connector.update(1, n=9, xs=None)
    connector.end()
    append(tmp_path / "events.jsonl", connector.lines)
    source = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    settings = PipelineSettings("whole_again", source, session_lake)
    pipeline = sync(open_pipeline(settings), spark)
    assert count_quarantined_records(pipeline.lake) == 2

    null_policies = {"*": NullPolicy.UNAVAILABLE}
    pipeline = open_pipeline(replace(settings, source=replace(source, null_policies=null_policies)))
    assert len(replay_records(pipeline, QuarantineFilter(reason="is null in an update")).from_texts) == 2
    run_cycle(pipeline, spark)
    assert [(row["id"], row["n"]) for row in rows_of(pipeline, TABLE)] == [(1, 9), (2, 5)]
    assert count_quarantined_records(pipeline.lake) == 0
    connector = replace(connector, lines=[])
    connector.whole(3)
    append(tmp_path / "events.jsonl", connector.lines)
    pipeline = sync(pipeline, spark)
    assert [row["id"] for row in rows_of(pipeline, TABLE)] == [1, 2, 3]
    assert failed_checks(pipeline, spark, "nothing_lost") == {}


def test_halves_of_a_key_change_without_headers_belong_together(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A row whose key change is replayed takes the values along that the insert leaves out."""
    connector = Connector()
    connector.begin()
    connector.insert(1, 5, big="large", xs=[1])
    connector.end()
    connector.begin()
    connector.move(1, 2, n=6, big=DEFAULT_PLACEHOLDER, xs=None)
    connector.end()
    append(
        tmp_path / "events.jsonl",
        (json.dumps(json.loads(text) | {"headers": {}}) for text in connector.lines),
    )
    source = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    settings = PipelineSettings("halves_again", source, session_lake)
    assert count_quarantined_records(sync(open_pipeline(settings), spark).lake) == 2

    null_policies = {"*": NullPolicy.UNAVAILABLE}
    pipeline = open_pipeline(replace(settings, source=replace(source, null_policies=null_policies)))
    replay_records(pipeline, QuarantineFilter())
    pipeline = sync(pipeline, spark)
    rows = [(row["id"], row["n"], row["big"], row["xs"]) for row in rows_of(pipeline, TABLE)]
    assert rows == [(2, 6, "large", [1])]
    assert failed_checks(pipeline, spark, "tables_equal_log", "nothing_lost") == {}


@pytest.mark.parametrize("bound", ["TEXTS_OF_A_CYCLE", "BYTES_OF_A_CYCLE"])
def test_a_cycle_replays_a_part_of_the_texts(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
) -> None:
    """One process decodes them: neither many nor large ones fill its memory, nor do former ones."""
    monkeypatch.setattr(f"cdc_platform.pipeline.on_demand.replay.{bound}", 1)
    connector = Connector()
    connector.whole(1)
    for n in (2, 3):
        connector.begin()
        connector.update(1, n=n, xs=None)
        connector.end()
    append(tmp_path / "events.jsonl", connector.lines)
    source = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    settings = PipelineSettings(f"parts_{bound.lower()}", source, session_lake)
    sync(open_pipeline(settings), spark)
    null_policies = {"*": NullPolicy.UNAVAILABLE}
    pipeline = open_pipeline(replace(settings, source=replace(source, null_policies=null_policies)))
    assert len(replay_records(pipeline, QuarantineFilter()).from_texts) == 2
    parts = load_replays(pipeline.lake).texts.values()
    assert [[record.record for record in part] for part in parts] == [[None], [None]]
    assert [row["n"] for row in rows_of(sync(pipeline, spark), TABLE)] == [3]
    assert count_quarantined_records(pipeline.lake) == 0
