"""Replay of events from their texts in quarantine and in raw records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits.filters import all_of, equals, is_any
from cdc_platform.lake.state.read_progress import load_replay_progress, replay_path
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.rows.keyless import is_keyless
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.ordering_key import place_of
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.model.stream.records import ModType, RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.event_batches import EventBatches, FileCounts

Raw: TypeAlias = Mapping[str, Any]
"""A raw record."""
Event: TypeAlias = SourceEvent | FaultyEvent
DeletedKeys: TypeAlias = Mapping[tuple[str, str], str]
"""Keys of deleted rows, by table and by the place that both halves of a key change share."""


def replayed_records(
    pipeline: Pipeline, cycle: int, plan: ReadPlan, micros: int, records: Sequence[QuarantinedRecord]
) -> pa.Table:
    """Return raw records of a replay that was requested at a moment, and that no cycle has taken yet.

    The cycle's commit contains them and their note in the read progress, so they are taken once.
    """
    replay = load_replay_progress(pipeline.lake)
    total_records, done_records = (replay.total, replay.done) if replay is not None else (len(records), 0)
    with pipeline.progress.step("replay", "records", total_records, done_records) as step:
        return _Replay(pipeline, cycle, plan, step).records(micros, records)


class _Replay:
    """Converts records in quarantine into raw records of one cycle."""

    def __init__(self, pipeline: Pipeline, cycle: int, plan: ReadPlan, step: Step) -> None:
        self._pipeline, self._cycle, self._plan, self._step = pipeline, cycle, plan, step
        self._batches, self._counts = EventBatches(cycle), FileCounts()

    def records(self, micros: int, records: Sequence[QuarantinedRecord]) -> pa.Table:
        """Return the records, and the report that adds them to the read progress."""
        unchanged_rows, decoded = list[dict[str, Any]](), list[tuple[QuarantinedRecord, Raw, Event]]()
        for record, raw in self._as_read(records):
            if raw is None or raw["event"] is None:
                raise LakeError(
                    f"The raw record of {record.record_id} is missing in `{RAW}`, so replay is impossible. "
                    "Restore the lake from a backup, or report this."
                )
            if raw["event"]["text"] is None:
                unchanged_rows.append(self._again(raw))
            else:
                decoded += ((record, raw, event) for event in self._decode(record, raw))
            self._step.advance()
        if self._pipeline.capabilities.comes_in_order:
            keys = _deleted_keys(unchanged_rows, (event for *_, event in decoded))
            unchanged_rows = [_with_former_key(row, keys) for row in unchanged_rows]
            decoded = [self._with_former_key(entry, keys) for entry in decoded]
        for record, raw, event in decoded:
            self._add(record, raw, event)
        window = self._plan.windows[0]
        report = SourceFile(replay_path(micros), window.token, 0, micros)
        window = replace(window, end_inclusive_micros=self._plan.end_micros)
        self._batches.report_file(window, report, self._counts, None)
        decoded_rows = pa.Table.from_batches(self._batches.take(), RAW_EVENT_RECORDS)
        return pa.concat_tables([decoded_rows, pa.Table.from_pylist(unchanged_rows, RAW_EVENT_RECORDS)])

    def _as_read(
        self, records: Sequence[QuarantinedRecord]
    ) -> Iterator[tuple[QuarantinedRecord, Mapping[str, Any] | None]]:
        """Yield each record with its raw record, which has all of its digits."""
        sequences = {record.sequence: record for record in records}
        is_quarantined = all_of(
            equals("kind", RecordKind.DATA_CHANGE.value),
            is_any("record_timestamp", {to_datetime(record.moment_micros).isoformat() for record in records}),
            is_any("record_sequence", sequences),
        )
        raw_rows = self._pipeline.lake.system_table(RAW).scan(is_quarantined).to_arrow().to_pylist()
        # Duplicates in one cycle are one record.
        rows = {row["record_sequence"]: row for row in raw_rows}
        for sequence, record in sequences.items():
            yield record, rows.get(sequence)

    def _again(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        self._counts.events += 1
        return {**raw, "cycle": self._cycle, "record_timestamp": to_datetime(self._plan.end_micros)}

    def _decode(self, record: QuarantinedRecord, raw: Raw, former_key: str | None = None) -> Iterator[Event]:
        origin, text, position = (raw["event"][name] for name in ("origin", "text", "position"))
        for event in self._pipeline.event_source.decode_again(origin, text, position, former_key):
            yield _placed(event, record, position)

    def _with_former_key(
        self, decoded: tuple[QuarantinedRecord, Raw, Event], keys: DeletedKeys
    ) -> tuple[QuarantinedRecord, Raw, Event]:
        """Return an event, decoded once more if another one shows which key its row had before."""
        record, raw, event = decoded
        if not isinstance(event, SourceEvent) or event.mod_type is not ModType.INSERT or event.previous_keys:
            return decoded
        key = keys.get((event.table, place_of(event.ordering_key)))
        return decoded if key is None else (record, raw, next(self._decode(record, raw, key)))

    def _add(self, record: QuarantinedRecord, raw: Raw, event: Event) -> None:
        window = ReadWindow(record.partition_token, 0, self._plan.end_micros)
        file = SourceFile(raw["event"]["origin"], record.partition_token, 0, 0)
        # The record stays in the transaction that counts it.
        transaction = raw["server_transaction_id"] if self._pipeline.capabilities.keeps_transactions else ""
        self._batches.add(event, window, file, transaction, raw["number_of_records_in_transaction"])


def _deleted_keys(rows: Iterable[Raw], events: Iterable[Event]) -> DeletedKeys:
    """Return the keys of deleted rows by table and place: without headers, nothing else pairs the halves."""
    changes = [
        *((row["table_name"], row["mod_type"], row["record_order"], row["mods"][0]["keys"]) for row in rows),
        *((*event[:3], event.keys) for event in events if isinstance(event, SourceEvent)),
    ]
    return {
        (table, place_of(order)): key
        for table, mod_type, order, key in changes
        if mod_type == ModType.DELETE and not is_keyless(key)
    }


def _with_former_key(row: dict[str, Any], keys: DeletedKeys) -> dict[str, Any]:
    """Return a raw record whose insert has its former key, even if the other half was faulty."""
    if row["mod_type"] != ModType.INSERT or row["event"]["previous_keys"]:
        return row
    key = keys.get((row["table_name"], place_of(row["record_order"])))
    return {**row, "event": {**row["event"], "previous_keys": key}}


def _placed(event: Event, record: QuarantinedRecord, position: int) -> Event:
    """Return an event at the position of its record; a faulty event also keeps the record's identity."""
    if isinstance(event, SourceEvent):
        return event._replace(position=position)
    event_id = event.event_id or record.sequence
    return replace(event, position=position, event_id=event_id, table=event.table or record.table)
