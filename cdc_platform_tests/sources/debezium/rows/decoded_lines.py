"""Lines of changes, and what the reader of a split makes of them."""

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa

from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.debezium.rows.plain_changes import PlainChanges
from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform.sources.debezium.splits.marked_rows import from_octets
from cdc_platform.sources.debezium.splits.outcome import FREE, OUTCOME, ROWS, SplitOutcome
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.wire.messages import RawMessage
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with

OTHER: Final = "public.items"
NOW_S: Final = 1_700_000_000
SETTINGS: Final[dict[str, Any]] = {
    "columns": {**COLUMNS, OTHER: COLUMNS[TABLE]},
    "null_policies": {"smallint[]": NullPolicy.NULL},
}
WHOLE: Final[dict[str, Any]] = {"id": 1, "n": 1, "big": "x", "xs": [1]}
KEY_ALONE: Final = {**dict.fromkeys(WHOLE), "id": 1}
"""Row before a delete with the replica identity DEFAULT."""


def scanned(table: str, seconds: int) -> str:
    """Return the notification of a snapshot that has found a table without rows."""
    more = {"connector_name": "s", "scanned_collection": table, "status": "SUCCEEDED"}
    kind = {"aggregate_type": "Initial Snapshot", "type": "TABLE_SCAN_COMPLETED", "id": f"{table} {seconds}"}
    more["total_rows_scanned"] = "0"
    value = {**kind, "additional_data": more, "timestamp": (NOW_S + seconds) * 1000}
    return line(value, {"id": value["id"]}, topic="s.notifications")


def change(
    op: str,
    lsn: int,
    row: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
    order: int | None = None,
) -> str:
    """Return the line of a change of the table, or of its delete."""
    place = {"lsn": lsn, "sequence": f'["1","{lsn}"]', **(source or {})}
    transaction = None if order is None else {"id": "7:1", "total_order": order}
    after = {**WHOLE, **(row or {})}
    images = {"before": after} if op == "d" else {"after": after}
    return line(envelope(op, source=place, transaction=transaction, **images), {"id": 1}, headers=headers)


def decode(
    texts: Sequence[str | RawMessage],
    *,
    is_one_stream: bool = True,
    has_messages: bool = False,
    **options: Any,
) -> tuple[object, ...]:
    """Return the rows of lines, or of the messages in them, and all that their reader reports of them."""
    settings = settings_with(**{**SETTINGS, **options})
    context = SplitContext(settings.to_options(), 1, ReadWindow("stream", 0, 9), is_one_stream)
    reader = SplitReader(context, None, {"file": SourceFile("file", "", 0, 0)})
    for position, text in enumerate(texts):
        sent = text.encode() if not has_messages and isinstance(text, str) else message(text, position)
        reader.take(sent, "file", position)
    blocks = pa.Table.from_batches(reader.blocks()).to_pylist()
    rows = sorted((row for block in blocks if block[ROWS] for row in rows_of(block[ROWS])), key=repr)
    outcome = SplitOutcome.from_bytes(blocks[-1][OUTCOME])
    transactions, places = (sorted(t.to_pylist(), key=repr) for t in (outcome.transactions, outcome.places))
    by_transaction = {"transactions": transactions, "places": places, "names": sorted(outcome.names)}
    free = sorted(pickle.loads(blocks[-1][FREE]), key=repr)  # noqa: S301  written by the reader itself
    return rows, free, {**asdict(outcome), **by_transaction, "lines": None}


def message(text: str | RawMessage, position: int) -> RawMessage:
    """Return the message of a line as a topic has it."""
    if isinstance(text, RawMessage):
        return text
    parts = json.loads(text)
    key, value = (
        None if parts[name] is None else json.dumps(parts[name]).encode() for name in ("key", "value")
    )
    headers = parts.get("headers")
    sent = None if headers is None else {name: json.dumps(headers[name]).encode() for name in headers}
    return RawMessage(parts["topic"], key, value, sent, offset=position, position=position)


def rows_of(octets: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of octets."""
    for batch in from_octets(pa.py_buffer(octets)):
        yield from batch.to_pylist()


def check_same(texts: Sequence[str | RawMessage], options: dict[str, Any]) -> None:
    """Check that lines give the same as where each event is decoded by itself."""
    with patch.object(PlainChanges, "learn"):
        expected = decode(texts, **options)

    assert expected == decode(texts, **options)
