"""The targets of fuzzing: pipelines' files, each decoder, its rows in Arrow, and neighbours of bad input."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable, SourceError
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.splits.decoded_splits import LocalSplits
from cdc_platform.sources.debezium.splits.release import Release
from cdc_platform.sources.debezium.splits.reports import Reading, report_batches
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.transactions.arrival import Arrival
from cdc_platform.sources.debezium.transactions.passed_until import PassedUntil
from cdc_platform.sources.debezium.transactions.progress import PASSED, STATE
from cdc_platform.sources.debezium.transactions.transaction_buffer import TransactionBuffer
from cdc_platform.sources.debezium.wire.lines import check_gzip, read_lines
from cdc_platform.sources.debezium.wire.messages import RawMessage
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.decode import decode_change_record
from cdc_platform.sources.spanner.stream.json_records import decode_json_record
from cdc_platform.sources.spanner.stream.record_rows import RecordRow
from cdc_platform.sources.text_files import FileDamaged
from cdc_platform_tests.fuzzing.bounds import Target
from cdc_platform_tests.fuzzing.copies import check_copy, copy_inputs
from cdc_platform_tests.fuzzing.documents import check_documents, document_inputs
from cdc_platform_tests.fuzzing.mutations import TEXTS, bent, listed, plain, trees, written
from cdc_platform_tests.fuzzing.stored import check_stored, stored_inputs
from cdc_platform_tests.sources.datastream.generated_events import SOURCES, story
from cdc_platform_tests.sources.datastream.raw_avro import avro
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with
from cdc_platform_tests.sources.spanner.fake_server import (
    change_row,
    child_record,
    data_record,
    json_data_record,
    to_value,
)
from cdc_platform_tests.unified_types import UNIFIED, avro_file, event_schema

GOLDEN: Final = Path(__file__).parents[1] / "golden"
_WINDOW: Final = ReadWindow("", 0, 1)
_FILE: Final = SourceFile("file", "", 0, 0)


def _rows(events: Iterable[SourceEvent | FaultyEvent]) -> list[dict[str, Any]]:
    """Return the raw records of events."""
    batches = EventBatches(1)
    for event in events:
        batches.add(event, _WINDOW, _FILE)
    return _sound(batches.take())


def _sound(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows of batches: changes, or faults that say why and of what."""
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        fault = row["event"]["fault"]
        assert (fault is None) == (row["mod_type"] is not None)
        assert fault is None or (fault and row["event"]["text"] is not None)
        for text in (*row["mods"][0].values(), row["event"]["metadata"], row["column_types"]):
            assert text is None or json.loads(text) is not None or fault
    return rows


# Debezium


def _good(table: str, key: int) -> str:
    """Return a good line, of a transaction of its own."""
    source = {"table": table, "lsn": 900_000 + key, "txId": 900_000 + key}
    return line(envelope("c", after={"id": key, "n": key}, source=source), {"id": key})


_GOOD: Final = [_good("good", key) for key in (1, 2)]
"""Neighbours in another table."""
_BESIDE: Final = [_good("orders", key) for key in (9001, 9002)]
"""Neighbours in the table that most bad events name."""
_DEBEZIUM: Final = settings_with(
    columns={
        TABLE: {
            **COLUMNS[TABLE],
            "d": "numeric",
            "j": "jsonb",
            "h": "hstore",
            "t": "timestamptz",
            "b": "bytea",
        },
        "public.good": COLUMNS[TABLE],
    }
)
_ROW: Final = {"id": 1, "n": 2, "big": "a", "xs": [1, None], "d": 1.5, "j": '{"a":1}', "h": '{"a":"b"}'}
_ROW_2: Final = {**_ROW, "t": "2026-01-31T08:00:00.123456Z", "b": "AAEC"}


def _captured() -> list[Any]:
    """Return messages that the connector has written, a few of each capture."""
    captured_lines = []
    for path in sorted((GOLDEN / "debezium").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as opened:
            lines = [text for text in opened if len(text) < 20_000]
        captured_lines += [json.loads(text) for text in lines[:: max(1, len(lines) // 5)]]
    return captured_lines


def _debezium_seeds() -> list[Any]:
    block = {"id": "7:500", "total_order": 1, "data_collection_order": 1}
    events = [
        envelope("c", after=_ROW_2, transaction=block),
        envelope("u", before=_ROW_2, after={**_ROW_2, "n": 3}),
        envelope("d", before=_ROW_2),
        envelope("r", after=_ROW_2, source={"snapshot": "true"}),
        envelope("m", message={"prefix": "p", "content": "YQ=="}),
        {
            "status": "END",
            "id": "7:500",
            "event_count": 1,
            "data_collections": [{"data_collection": TABLE, "event_count": 1}],
            "ts_ms": 5,
        },
        {
            "__op": "c",
            "__source_schema": "public",
            "__source_table": "orders",
            "__source_txId": 7,
            "__source_lsn": 500,
            **_ROW,
        },
    ]
    return [
        *(json.loads(line(event, {"id": 1}, offset=5, partition=0, headers={"a": "b"})) for event in events),
        *_captured(),
    ]


def check_debezium(data: bytes) -> None:
    """Check that a file with good lines around some octets gives both of them, and faults for the rest."""
    before, after = ([lines[place].encode() for lines in (_GOOD, _BESIDE)] for place in (0, 1))
    text = b"\n".join([*before, data.replace(b"\n", b" "), *after, b""])
    reader = SplitReader(SplitContext(_DEBEZIUM.to_options(), 1, _WINDOW, True), None, {"file": _FILE})
    decoded = reader.decoder.decode_lines([line.text for line in read_lines(BytesIO(text))])
    for place, event in enumerate(decoded):
        reader.collector.take(Arrival(event, "file", place))
    rows = _released(reader, TransactionBuffer(is_one_stream=True))
    good = [row for row in rows if row["table_name"] in ("public.good", TABLE) and not row["event"]["fault"]]
    assert {1, 2, 9001, 9002} <= {json.loads(row["mods"][0]["keys"]).get("id") for row in good}


def check_debezium_topics(data: bytes) -> None:
    """Check the same of messages of topics, whose transactions are kept."""
    good = [json.loads(text) for text in (*_GOOD, *_BESIDE)]
    raw = [RawMessage("t", json.dumps(event["key"]), json.dumps(event["value"]), offset=0) for event in good]
    bad = [RawMessage("t", data, data, {"h": data}), RawMessage("t", b'{"id":1}', _value_of(data))]
    settings = replace(_DEBEZIUM, has_transaction_topic=True)
    reader = SplitReader(SplitContext(settings.to_options(), 1, _WINDOW, False), None, {"t/0": _FILE})
    for place, event in enumerate(reader.decoder.decode_raw([raw[0], raw[2], *bad, raw[1], raw[3]])):
        reader.collector.take(Arrival(event, "t/0", place, place))
    rows = _released(reader, TransactionBuffer(is_one_stream=False, patience_micros=0))
    arrived = {row["mods"][0]["keys"] for row in rows if row["event"]["fault"] is None}
    assert {f'{{"id":{key}}}' for key in (1, 2, 9001, 9002)} <= arrived


def _released(reader: SplitReader, buffer: TransactionBuffer) -> list[dict[str, Any]]:
    """Return the rows of what a reader has taken, whose reports can be read back."""
    split = LocalSplits(pa.Table.from_batches(reader.blocks()))
    (outcome,) = split.outcomes
    opening = outcome.opened(buffer, has_metadata=reader.settings.tells_transactions)
    files = {"file": _FILE, "t/0": _FILE}
    reports = report_batches(Reading(files, {}), outcome, opening, EventBatches(1), _WINDOW)
    events = [row["event"] for batch in reports for row in batch.to_pylist() if row["event"]]
    versions = {event["origin"]: json.loads(event["metadata"]).get("version") for event in events}
    PassedUntil.of(versions[PASSED])
    DecoderState.from_json(versions[STATE])
    return _sound(Release(opening, {"public.other": ""})(split.blocks()))


def _value_of(data: bytes) -> bytes:
    """Return the value of a line, as it is written, if it is the line of a message."""
    try:
        return bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])["value"])
    except (ValueError, LookupError, RecursionError):
        return data


def check_debezium_file(data: bytes) -> None:
    """Check that a whole file is lines or named as damaged."""
    try:
        check_gzip(BytesIO(data), 2**20)
        lines = [line.text for line in read_lines(BytesIO(data))]
    except FileDamaged:
        return
    _rows(
        event
        for event in Decoder(_DEBEZIUM).decode_lines(lines)
        if isinstance(event, SourceEvent | FaultyEvent)
    )


# Datastream


_STREAM: Final = DatastreamSettings(
    "x", columns={"shop.items": {"note": "JSON"}}, most_block_bytes=2**20, most_digits=200, most_depth=40
)
_GOOD_EVENTS: Final = [
    {**event, "object": "good", "schema_key": "f" * 40, "uuid": f"good-{place}"}
    for place, event in enumerate(story("mysql")[:2])
]
_BESIDE_EVENTS: Final = [
    {**event, "uuid": f"beside-{place}", "payload": {**event["payload"], "id": 9000 + place}}
    for place, event in enumerate(story("mysql")[:2])
]
_GOOD_LINES: Final = [json.dumps(event).encode() for event in (*_GOOD_EVENTS, *_BESIDE_EVENTS)]


def check_datastream_json(data: bytes) -> None:
    """Check that a file with good lines around some octets gives both of them, and faults for the rest."""
    first, second, third, fourth = _GOOD_LINES
    text = b"\n".join([first, third, data.replace(b"\n", b" "), second, fourth])
    rows = _rows(decode_file(_STREAM, text))
    good = [row["record_sequence"] for row in rows if row["event"]["fault"] is None]
    identities = {name.rpartition("/")[2] for name in good}
    assert {"good-0", "good-1", "beside-0", "beside-1"} <= identities
    assert len(rows) == (5 if data.strip() else 4)


def check_datastream_file(data: bytes) -> None:
    """Check that every file gives events and faults, and that the next file is read as it always is."""
    _rows(decode_file(_STREAM, data))
    assert [row["event"]["fault"] for row in _rows(decode_file(_STREAM, _GOOD_AVRO))] == [None, None]


_TYPES: Final = tuple(sorted(UNIFIED))
_SCHEMA: Final = event_schema([(kind, UNIFIED[kind].schema(kind)) for kind in _TYPES])
_JSON: Final = UNIFIED["JSON"].schema("j")
_GOOD_AVRO: Final = avro_file(event_schema([("c0", "long")]), [{"c0": 1}, {"c0": 2}])


def _avro_files() -> list[bytes]:
    paths = sorted((GOLDEN / "datastream").rglob("*.avro"))
    return [_GOOD_AVRO, *(path.read_bytes() for path in paths if path.stat().st_size < 20_000)]


def _texted(text: str, name: str) -> bytes:
    """Return an Avro file with a text as a value, a JSON document or the name of a column."""
    decoded = text.encode("utf-8", "replace").decode()
    types: dict[str, Any] = {"c0": "long", "json": _JSON, "text": "string", name: "string"}
    row = {"c0": 1, "json": decoded, "text": decoded, name: decoded}
    return avro_file(event_schema([*types.items()]), [row, {"c0": 2}])


_NEIGHBOURS: Final = ("c0", "json", "text")
_BLOCKS: Final = avro_file(
    event_schema([*zip(_NEIGHBOURS, ("long", _JSON, "string"), strict=True)]),
    [{"c0": number, "json": "1", "text": "a"} for number in (1, 2, 3)],
    block_bytes=1,
)
_SYNC: Final = _BLOCKS[-16:]
_BEGINNING: Final = _BLOCKS[: _BLOCKS.index(_SYNC, _BLOCKS.index(_SYNC) + 16) + 16]
"""The header and the block of the first event."""


def check_avro_events(data: bytes) -> None:
    """Check that the neighbours of a bad event of an Avro file arrive, as far as the format lets them.

    A value that is Avro and no value of its column costs only its own event: those before and after it
    arrive. Where the encoding itself is damaged, nothing shows where the next value of the block begins, so
    that what follows in the block is lost; the events before it arrive, with one fault for the file.
    """
    text = data.decode("utf-8", "replace")
    rows = [{"c0": 1, "json": "1"}, {"c0": 2, "json": text, "text": text}, {"c0": 3, "json": "1"}]
    schema = event_schema([*zip(_NEIGHBOURS, ("long", _JSON, "string"), strict=True)])
    whole = _rows(decode_file(_STREAM, avro_file(schema, rows)))
    assert len(whole) == len(rows)
    assert [_good_key(row) for row in (whole[0], whole[2])] == [1, 3]
    damaged = _rows(decode_file(_STREAM, _BEGINNING + data))
    assert _good_key(damaged[0]) == 1


def _good_key(row: dict[str, Any]) -> object:
    assert row["event"]["fault"] is None
    return json.loads(row["mods"][0]["keys"])["c0"]


def _avro_event_inputs() -> st.SearchStrategy[bytes]:
    texts = st.sampled_from(TEXTS).map(lambda text: text.encode("utf-8", "replace"))
    return st.one_of(texts, bent(st.just(_BLOCKS[len(_BEGINNING) :])), st.binary(max_size=40))


def _avro_inputs() -> st.SearchStrategy[bytes]:
    files = _avro_files()
    schemas = [
        _SCHEMA,
        *(json.loads(fastavro.reader(BytesIO(data)).metadata["avro.schema"]) for data in files),
    ]
    schema_bombs = st.builds(avro, trees(schemas).map(written), st.binary(max_size=60), st.integers(0, 2**62))
    names = st.sampled_from(["a", "A_b", "json2", "_pos", "__x"])
    return st.one_of(
        bent(st.sampled_from(files)), schema_bombs, st.builds(_texted, st.sampled_from(TEXTS), names)
    )


# Spanner


_COMMIT: Final = "2026-11-21T06:00:01.000001Z"


def _check_spanner(rows: list[RecordRow], good: RecordRow) -> None:
    rows_read = to_batch(1, "token", [tuple(good), *map(tuple, rows), tuple(good)]).to_pylist()
    assert len(rows_read) == len(rows) + 2
    assert rows_read[0] == rows_read[-1]
    assert rows_read[0]["number_of_records_in_transaction"] == 1


def check_googlesql(data: bytes) -> None:
    """Check that a value gives records or the one error that there is, and good records beside it stay."""
    good = decode_change_record(to_value(change_row(data=[data_record(_COMMIT)])).SerializeToString())
    try:
        rows = decode_change_record(data)
    except RecordUnreadable:
        return
    _check_spanner(rows, good[0])


def check_postgresql(data: bytes) -> None:
    """Check the same of a record in JSON."""
    good = decode_json_record(to_value(json.dumps(json_data_record(_COMMIT))).SerializeToString())
    text = data.decode("utf-8", "replace")
    try:
        rows = decode_json_record(to_value(text).SerializeToString())
    except SourceError:
        return
    _check_spanner(rows, good[0])


def _googlesql_inputs() -> st.SearchStrategy[bytes]:
    children: Any = [child_record(_COMMIT, "a", "b", None)]
    seeds = [
        json.loads(json.dumps(change_row(data=[data_record(_COMMIT)]))),
        json.loads(json.dumps(change_row(heartbeats=[_COMMIT], children=children))),
    ]
    values = trees(seeds).map(lambda tree: to_value(listed(plain(tree))).SerializeToString())
    return st.one_of(values, bent(st.sampled_from([to_value(seed).SerializeToString() for seed in seeds])))


def _postgresql_seeds() -> list[Any]:
    children = [{"token": "a", "parent_partition_tokens": ["b", None]}]
    return [
        json_data_record(_COMMIT),
        {"heartbeat_record": {"timestamp": _COMMIT}},
        {
            "child_partitions_record": {
                "start_timestamp": _COMMIT,
                "record_sequence": "00000001",
                "child_partitions": children,
            }
        },
    ]


def _lines_of(seeds: list[Any]) -> st.SearchStrategy[bytes]:
    good = st.sampled_from([json.dumps(seed).encode() for seed in seeds])
    return st.one_of(trees(seeds).map(lambda tree: written(tree).encode()), bent(good))


def _packed(lines: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(lines, bent(lines.map(gzip.compress)), st.binary(max_size=100))


def targets() -> dict[str, Target]:
    """Return all that is fuzzed, by name."""
    debezium = _lines_of(_debezium_seeds())
    datastream = _lines_of([event for source in SOURCES for event in story(source)[::3]])
    return {
        "debezium": Target(debezium, check_debezium),
        "debezium_topics": Target(debezium, check_debezium_topics),
        "debezium_file": Target(_packed(debezium), check_debezium_file),
        "datastream_json": Target(datastream, check_datastream_json),
        "datastream_file": Target(_packed(datastream), check_datastream_file),
        "datastream_avro": Target(_avro_inputs(), check_datastream_file),
        "datastream_avro_events": Target(_avro_event_inputs(), check_avro_events),
        "spanner_googlesql": Target(_googlesql_inputs(), check_googlesql),
        "spanner_copy": Target(copy_inputs(), check_copy),
        "stored_texts": Target(stored_inputs(), check_stored),
        "spanner_postgresql": Target(_lines_of(_postgresql_seeds()), check_postgresql),
        "pipeline_yaml": Target(document_inputs(), check_documents),
    }
