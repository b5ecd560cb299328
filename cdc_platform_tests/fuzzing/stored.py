"""Every kind of text that the lake has of the platform, as it is read back: its meaning, or damage."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple, cast

from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.commits.commits import (
    ATTEMPT,
    BRANCH,
    BYTES,
    LATE,
    POSITION,
    STATS,
    bytes_since,
    read_mark,
)
from cdc_platform.lake.state.copies import COPY, ChunkBatch, CopyPlan, columns_to_text
from cdc_platform.lake.state.markers import marker_of
from cdc_platform.lake.state.read_progress import read_report
from cdc_platform.lake.state.schema_history import build_stored_history
from cdc_platform.model.base.stored_names import CYCLE
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.rows.keyless import keys_text, row_of
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent, describe_event
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.files import FileReport, WaitingTransaction
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.unread import FailedRead
from cdc_platform.pipeline.ordering.addresses import read_notes
from cdc_platform.pipeline.versions.branch import COMPLETE, finished_head
from cdc_platform.pipeline.versions.log_span import stats_after
from cdc_platform.sources.debezium.files.source import states_of
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicProgress
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.transactions.progress import PASSED, STATE, FileProgress, PassedUntil
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, PartitionToken
from cdc_platform.sources.spanner.copying.copy_reader import plan_copy_tasks
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.fuzzing.mutations import TEXTS, bent, trees, written
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with

_SEPARATOR: Final = b"\n"


class Kind(NamedTuple):
    """A kind of text: some that the platform has written, and how it reads them, and writes them again."""

    texts: tuple[str, ...]
    read: Callable[[str], Any]
    write: Callable[[Any], str] | None = None


# Summaries of snapshots


def table_with(summary: dict[str, str], ref: str = "main") -> Table:
    """Return a table with one snapshot on an empty one, whose summary has these entries."""
    common = {"timestamp-ms": 1, "manifest-list": "lake/p/t/metadata/snap.avro", "schema-id": 0}
    summary_fields = {"operation": "append", **summary}
    metadata = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "lake/p/t")
    changes = {
        "snapshots": [
            Snapshot.model_validate({"snapshot-id": 1, "summary": {"operation": "append"}, **common}),
            Snapshot.model_validate(
                {"snapshot-id": 2, "parent-snapshot-id": 1, "summary": summary_fields, **common}
            ),
        ],
        "refs": {ref: SnapshotRef.model_validate({"snapshot-id": 2, "type": "branch"})},
    }
    return Table(("p", "t"), metadata.model_copy(update=changes), "", load_file_io(), NoopCatalog("fuzz"))


def _chunk_batch(text: str) -> ChunkBatch:
    batch = ChunkBatch.of(table_with({COPY: text}).metadata.snapshots[1])
    assert batch is not None
    return batch


def _stats(text: str) -> object:
    return stats_after(table_with({CYCLE: "1", STATS: text}), "t", 0)


def _late(text: str) -> object:
    return stats_after(table_with({CYCLE: "1", STATS: "{}", LATE: text}), "t", 0)


def _completion(text: str) -> object:
    return finished_head(table_with({CYCLE: "1", ATTEMPT: "token", f"{COMPLETE}t": text}, BRANCH), 1, None)


def _position(text: str) -> str:
    table = table_with({CYCLE: text, POSITION: text, BYTES: text})
    bytes_since(table, 0)
    return to_rfc3339(read_mark(table).position_micros or 0)


# The read progress


def _state(text: str) -> DecoderState:
    states_of({STATE: text})
    state = DecoderState.from_json(text)
    # What is there is what a decoder continues with.
    list(Decoder(settings_with(), state).decode_lines([line(envelope("d", before={"id": 1}), {"id": 1})]))
    return DecoderState.from_json(text)


def _passed(text: str) -> PassedUntil:
    states_of({PASSED: text})
    return PassedUntil.of(text)


def _failed(text: str) -> FailedRead:
    failure = read_stored(FailedRead.from_text, text, "files", "row")
    to_rfc3339(failure.due_micros)
    return failure


def _report(text: str) -> FileReport:
    report = read_report({"origin": "file", "metadata": text})
    moments = [
        report.tried_micros,
        report.again_since_micros,
        *(each.since_micros for each in report.waiting),
    ]
    assert all(to_rfc3339(micros) for micros in moments if micros is not None)
    return report


# Quarantine, the schema's history, plans of copies


def _quarantined(text: str) -> object:
    record = QuarantinedRecord(1, "why", "", 0, None, "a", "t", text)
    return record.place, dict(record.event)


_HISTORY: Final = (
    SchemaEvent(1, SchemaChange.TABLE_ADDED, "t"),
    SchemaEvent(1, SchemaChange.COLUMN_ADDED, "t", "id", '{"code": "INT64"}', is_primary_key=True, ordinal=1),
    SchemaEvent(1, SchemaChange.COLUMN_ADDED, "t", "n", '{"code": "STRING"}'),
)
_BY_CHANGE: Final = {
    SchemaChange.COLUMN_ADDED: '{"code": "ARRAY", "array_element_type": {"code": "INT64"}}',
    SchemaChange.COLUMN_RETYPED: '{"code": "BYTES"}',
    SchemaChange.COLUMN_CASE_VARIANT: '{"code": "NUMERIC", "type_annotation": "PG_NUMERIC"}',
    SchemaChange.COLUMNS_PLACED: '{"n": 2}',
    SchemaChange.KEY_ORDERED: '["id"]',
    SchemaChange.UNWATCHED_COLUMNS: '["a", "b"]',
    SchemaChange.OTHER_TABLES: '["u"]',
}


def _schema_value(change: SchemaChange) -> Callable[[str], object]:
    """Return what reads the value of a change."""
    name = None if change in (SchemaChange.OTHER_TABLES, SchemaChange.KEYLESS_TABLES) else "n"

    def read(text: str) -> object:
        event = SchemaEvent(2, change, "t" if name else None, name, text, since_micros=1)
        return build_stored_history([*_HISTORY, event]).tables, describe_event(event)

    return read


def _columns(text: str) -> Any:
    return CopyPlan("accounts", 1, 1, 2, text, ()).schema


def _chunk(text: str) -> Chunk:
    (chunk,) = plan_copy_tasks("{}", _ACCOUNTS, 5, [text]).parts
    return cast("Chunk", chunk)


_ACCOUNTS: Final = table("accounts", {"id": "INT64"}, {"owner": "STRING(MAX)", "xs": "ARRAY<INT64>"})
_CHUNKS: Final = (
    Chunk(5, ("1", None, False, 0.5), ("2", "", True, -0.0)),
    Chunk(5, partition=PartitionToken("s", b"\0t", b"\xff")),
)


def _written_state() -> str:
    decoder = Decoder(settings_with())
    events = [
        envelope("r", after={"id": 1, "n": 1}, source={"snapshot": "true"}),
        envelope("c", after={"id": 1, "n": 1}),
        envelope("d", before={"id": 1, "n": 1}),
    ]
    list(decoder.decode_lines([line(event, {"id": 1}) for event in events]))
    decoder.state.snapshots.servers["s"].empty["t"] = ("a", 1)
    decoder.state.flat_events["t/0"] = 1, '{"id": 1}'
    return decoder.state.to_json()


def _written_report() -> str:
    report = FileReport("1-2", is_read=False, error="Broken", waiting=(WaitingTransaction("t", 1, 2, None),))
    return json.dumps(asdict(replace(report, tried_micros=6, again_since_micros=5)))


def kinds() -> dict[str, Kind]:
    """Return all kinds of texts, by their names."""
    passed = PassedUntil("0001 0002", 3, {"t": "a#b"}, 4)
    record_fields = {"record_order": "a b c", "event": {"metadata": '{"row_id": "A"}', "position": 3}}
    message = json.dumps({"prefix": "p", "content": "c", "lsn": 1, "transaction": None})
    batch = ChunkBatch(1, 2, frozenset({0, 1, 2, 7}), 3, 4)
    whole = json.dumps({"base": 1, "commits": 1, "matched": None})
    event = {"record_sequence": "e", "cycle": 1, "record_order": "o"}
    return {
        "decoder_state": Kind((_written_state(),), _state, DecoderState.to_json),
        "passed_until": Kind((passed.to_text(),), _passed, PassedUntil.to_text),
        "file_progress": Kind(
            ('["1-2", 3, 70, true]', '["a#b", 0, 0, false]'), _of(FileProgress.of), FileProgress.to_text
        ),
        "topic_progress": Kind(('["id", 3, 4]',), _of(TopicProgress.of), TopicProgress.to_text),
        "failed_read": Kind((FailedRead("1-2", 5, "\u00e9", 3).to_text(),), _failed, FailedRead.to_text),
        "file_report": Kind((_written_report(),), _report, lambda report: json.dumps(asdict(report))),
        "message": Kind((message,), lambda text: marker_of({**event, "event": {"metadata": text}})),
        "notes": Kind(('{"row_id": "A"}',), lambda text: dict(read_notes("e", text))),
        "quarantined_record": Kind((json.dumps(record_fields),), _quarantined),
        "keyless_key": Kind((keys_text("ab", 0),), row_of),
        "chunk_batch": Kind((batch.to_text(),), _chunk_batch, ChunkBatch.to_text),
        "statistics": Kind(('{"t": [1, 0, 2]}',), _stats),
        "late_tables": Kind(('["t"]',), _late),
        "completion": Kind((whole,), _completion),
        "mark": Kind(("1700000000000000",), _position),
        "columns": Kind((columns_to_text(_ACCOUNTS),), _columns, columns_to_text),
        "chunk": Kind(tuple(chunk.to_text() for chunk in _CHUNKS), _chunk, Chunk.to_text),
        "column_type": Kind((_BY_CHANGE[SchemaChange.COLUMN_ADDED],), _type, ColumnType.to_json),
        **{change.value: Kind((text,), _schema_value(change)) for change, text in _BY_CHANGE.items()},
    }


def _of(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read_stored(parse, text, "files", "row")


def _type(text: str) -> ColumnType:
    return read_stored(ColumnType.from_json, text, "schema_changes", "row")


KINDS: Final = kinds()


def check_stored(data: bytes) -> None:
    """Check that a text of some kind is understood, and written again as it means, or is damage."""
    name, _, content = data.partition(_SEPARATOR)
    kind = KINDS.get(name.decode("ascii", "replace"))
    if kind is None:
        return
    try:
        meaning = kind.read(content.decode("utf-8", "surrogatepass"))
    except (LakeDamaged, UnicodeDecodeError):
        return
    if kind.write is not None:
        assert kind.write(kind.read(kind.write(meaning))) == kind.write(meaning)


def _texts(name: str, kind: Kind) -> st.SearchStrategy[bytes]:
    """Return texts of a kind with something wrong in them."""
    good = st.sampled_from([text.encode() for text in kind.texts])
    wrong = st.sampled_from(TEXTS).map(lambda text: text.encode("utf-8", "surrogatepass"))
    texts = [wrong, bent(good), good]
    parsed = [_json(text) for text in kind.texts]
    if all(isinstance(tree, dict | list) for tree in parsed):
        texts.append(trees(parsed).map(lambda tree: written(tree).encode()))
    return st.one_of(*texts).map(lambda text: name.encode() + _SEPARATOR + text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def stored_inputs() -> st.SearchStrategy[bytes]:
    """Return texts of all kinds with something wrong in them."""
    return st.sampled_from(sorted(KINDS)).flatmap(lambda name: _texts(name, KINDS[name]))
