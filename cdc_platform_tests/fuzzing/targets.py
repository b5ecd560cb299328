"""The targets of fuzzing: pipelines' files, each decoder, its rows in Arrow, and neighbours of bad input."""

import gzip
import json
from io import BytesIO
from typing import Any, Final

import fastavro
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable, SourceError
from cdc_platform.sources.datastream.files.file_events import decode_file
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.decode import decode_change_record
from cdc_platform.sources.spanner.stream.json_records import decode_json_record
from cdc_platform.sources.spanner.stream.message_records import decode_message
from cdc_platform.sources.spanner.stream.record_rows import RecordRow
from cdc_platform_tests.fuzzing.bounds import Target
from cdc_platform_tests.fuzzing.copies import check_copy, copy_inputs
from cdc_platform_tests.fuzzing.debezium import (
    check_debezium,
    check_debezium_file,
    check_debezium_topics,
    debezium_seeds,
)
from cdc_platform_tests.fuzzing.documents import check_documents, document_inputs
from cdc_platform_tests.fuzzing.mutations import TEXTS, bent, listed, plain, trees, written
from cdc_platform_tests.fuzzing.raw_rows import GOLDEN, rows_of
from cdc_platform_tests.fuzzing.stored import check_stored, stored_inputs
from cdc_platform_tests.sources.datastream.generated_events import SOURCES, scenario
from cdc_platform_tests.sources.datastream.raw_avro import avro
from cdc_platform_tests.sources.spanner.fake_server import (
    change_row,
    child_record,
    data_record,
    json_data_record,
    to_value,
)
from cdc_platform_tests.sources.spanner.messages import COMMIT, PLACED, message_of, message_value, value_of
from cdc_platform_tests.sources.spanner.messages import data_record as data_message
from cdc_platform_tests.unified_types import UNIFIED, avro_file, event_schema

# Datastream


_STREAM: Final = DatastreamSettings(
    "x", columns={"shop.items": {"note": "JSON"}}, max_block_bytes=2**20, max_digits=200, max_depth=40
)
_GOOD_EVENTS: Final = [
    {**event, "object": "good", "schema_key": "f" * 40, "uuid": f"good-{place}"}
    for place, event in enumerate(scenario("mysql")[:2])
]
_NEIGHBOUR_EVENTS: Final = [
    {**event, "uuid": f"neighbour-{place}", "payload": {**event["payload"], "id": 9000 + place}}
    for place, event in enumerate(scenario("mysql")[:2])
]
_GOOD_LINES: Final = [json.dumps(event).encode() for event in (*_GOOD_EVENTS, *_NEIGHBOUR_EVENTS)]


def check_datastream_json(data: bytes) -> None:
    """Check that a file with good lines around some octets gives both of them, and faults for the rest."""
    first, second, third, fourth = _GOOD_LINES
    text = b"\n".join([first, third, data.replace(b"\n", b" "), second, fourth])
    rows = rows_of(decode_file(_STREAM, text))
    good = [row["record_sequence"] for row in rows if row["event"]["fault"] is None]
    identities = {name.rpartition("/")[2] for name in good}
    assert {"good-0", "good-1", "neighbour-0", "neighbour-1"} <= identities
    assert len(rows) == (5 if data.strip() else 4)


def check_datastream_file(data: bytes) -> None:
    """Check that every file gives events and faults, and that the next file is read as it always is."""
    rows_of(decode_file(_STREAM, data))
    assert [row["event"]["fault"] for row in rows_of(decode_file(_STREAM, _GOOD_AVRO))] == [None, None]


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
    whole = rows_of(decode_file(_STREAM, avro_file(schema, rows)))
    assert len(whole) == len(rows)
    assert [_good_key(row) for row in (whole[0], whole[2])] == [1, 3]
    damaged = rows_of(decode_file(_STREAM, _BEGINNING + data))
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
_MESSAGE: Final = data_message(number_of_records_in_transaction=1)


def _check_spanner(rows: list[RecordRow], good: RecordRow) -> None:
    rows_read = to_batch(1, "token", [tuple(good), *map(tuple, rows), tuple(good)]).to_pylist()
    assert len(rows_read) == len(rows) + 2
    assert rows_read[0] == rows_read[-1]
    assert rows_read[0]["number_of_records_in_transaction"] == 1


def check_googlesql(data: bytes) -> None:
    """Check that a value gives records or the one documented error, and that good records next to it stay."""
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


def check_messages(data: bytes) -> None:
    """Check the same of a record that is a message."""
    good = decode_message(value_of(data_change_record=_MESSAGE), "token")
    try:
        rows = decode_message(message_value(data), "token")
    except RecordUnreadable:
        return
    _check_spanner(rows, good[0])


def _message_inputs() -> st.SearchStrategy[bytes]:
    about = {**PLACED, "commit_timestamp": COMMIT, "partition_token": "token"}
    moves = {"move_in_events": [{"source_partition_token": "a"}]}
    seeds = [
        message_of(data_change_record=_MESSAGE),
        message_of(partition_event_record=about | moves),
        message_of(partition_start_record={**PLACED, "start_timestamp": COMMIT, "partition_tokens": ["a"]}),
    ]
    return st.one_of(bent(st.sampled_from(seeds)), st.binary(max_size=60))


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
    debezium = _lines_of(debezium_seeds())
    datastream = _lines_of([event for source in SOURCES for event in scenario(source)[::3]])
    return {
        "debezium": Target(debezium, check_debezium),
        "debezium_topics": Target(debezium, check_debezium_topics),
        "debezium_file": Target(_packed(debezium), check_debezium_file),
        "datastream_json": Target(datastream, check_datastream_json),
        "datastream_file": Target(_packed(datastream), check_datastream_file),
        "datastream_avro": Target(_avro_inputs(), check_datastream_file),
        "datastream_avro_events": Target(_avro_event_inputs(), check_avro_events),
        "spanner_messages": Target(_message_inputs(), check_messages),
        "spanner_googlesql": Target(_googlesql_inputs(), check_googlesql),
        "spanner_copy": Target(copy_inputs(), check_copy),
        "stored_texts": Target(stored_inputs(), check_stored),
        "spanner_postgresql": Target(_lines_of(_postgresql_seeds()), check_postgresql),
        "pipeline_yaml": Target(document_inputs(), check_documents),
    }
