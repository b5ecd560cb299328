"""What is fuzzed of Debezium's decoders: lines, messages and files."""

import gzip
import json
from dataclasses import replace
from io import BytesIO
from typing import Any, Final

import msgspec
import pyarrow as pa

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.splits.decoded_splits import LocalSplits
from cdc_platform.sources.debezium.splits.release import Release
from cdc_platform.sources.debezium.splits.reports import Reading, report_batches
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.transactions.progress import PASSED, STATE, PassedUntil
from cdc_platform.sources.debezium.transactions.transaction_buffer import TransactionBuffer
from cdc_platform.sources.debezium.wire.lines import check_gzip, read_lines
from cdc_platform.sources.debezium.wire.messages import RawMessage
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.text_files import FileDamaged
from cdc_platform_tests.fuzzing.raw_rows import FILE, GOLDEN, WINDOW, rows_of, sound_rows
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with


def _good(table: str, key: int) -> str:
    """Return a good line, of a separate transaction."""
    source = {"table": table, "lsn": 900_000 + key, "txId": 900_000 + key}
    return line(envelope("c", after={"id": key, "n": key}, source=source), {"id": key})


_GOOD: Final = [_good("good", key) for key in (1, 2)]
"""Neighbours in another table."""
_NEIGHBOURS: Final = [_good("orders", key) for key in (9001, 9002)]
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


def debezium_seeds() -> list[Any]:
    """Return messages of all kinds, as values, to bend."""
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
            "__deleted": "false",
            **_ROW,
        },
    ]
    return [
        *(json.loads(line(event, {"id": 1}, offset=5, partition=0, headers={"a": "b"})) for event in events),
        *_captured(),
    ]


def check_debezium(data: bytes) -> None:
    """Check that a file with good lines around some octets gives both of them, and faults for the rest."""
    before, after = ([lines[place].encode() for lines in (_GOOD, _NEIGHBOURS)] for place in (0, 1))
    text = b"\n".join([*before, data.replace(b"\n", b" "), *after, b""])
    reader = SplitReader(SplitContext(_DEBEZIUM.to_options(), 1, WINDOW, True), None, {"file": FILE})
    for place, read in enumerate(read_lines(BytesIO(text))):
        reader.take(read.text, "file", place)
    rows = _raw_records(reader, TransactionBuffer(is_one_stream=True))
    good = [row for row in rows if row["table_name"] in ("public.good", TABLE) and not row["event"]["fault"]]
    assert {1, 2, 9001, 9002} <= {json.loads(row["mods"][0]["keys"]).get("id") for row in good}


def check_debezium_topics(data: bytes) -> None:
    """Check the same of messages of topics, whose transactions are kept."""
    good = [json.loads(text) for text in (*_GOOD, *_NEIGHBOURS)]
    raw = [RawMessage("t", json.dumps(event["key"]), json.dumps(event["value"]), offset=0) for event in good]
    bad = [RawMessage("t", data, data, {"h": data}), RawMessage("t", b'{"id":1}', _value_of(data))]
    settings = replace(_DEBEZIUM, has_transaction_topic=True)
    reader = SplitReader(SplitContext(settings.to_options(), 1, WINDOW, False), None, {"t/0": FILE})
    for place, message in enumerate([raw[0], raw[2], *bad, raw[1], raw[3]]):
        reader.take(message, "t/0", place, place)
    rows = _raw_records(reader, TransactionBuffer(is_one_stream=False, patience_micros=0))
    arrived = {row["mods"][0]["keys"] for row in rows if row["event"]["fault"] is None}
    assert {f'{{"id":{key}}}' for key in (1, 2, 9001, 9002)} <= arrived


def _raw_records(reader: SplitReader, buffer: TransactionBuffer) -> list[dict[str, Any]]:
    """Return the rows of what a reader has taken, whose reports can be read back."""
    split = LocalSplits(pa.Table.from_batches(reader.blocks()))
    (outcome,) = split.outcomes
    admission = outcome.admission(buffer, has_metadata=reader.settings.has_transaction_metadata)
    files = {"file": FILE, "t/0": FILE}
    reports = report_batches(Reading(files, {}), outcome, admission, EventBatches(1), WINDOW)
    events = [row["event"] for batch in reports for row in batch.to_pylist() if row["event"]]
    versions = {event["origin"]: json.loads(event["metadata"]).get("version") for event in events}
    PassedUntil.of(versions[PASSED])
    DecoderState.from_json(versions[STATE])
    # Rows of a transaction that is not whole stay changes, each with its fault.
    whole = replace(admission, faults={})
    return sound_rows(Release(whole, {"public.other": ""})(split.blocks()))


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
        lines = [line.text.decode(errors="surrogateescape") for line in read_lines(BytesIO(data))]
    except FileDamaged:
        return
    rows_of(
        event
        for event in Decoder(_DEBEZIUM).decode_lines(lines)
        if isinstance(event, SourceEvent | FaultyEvent)
    )
