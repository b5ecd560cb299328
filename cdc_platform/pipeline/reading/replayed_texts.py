"""Replay of events from their texts in quarantine and in raw records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits.filters import all_of, equals, is_any
from cdc_platform.lake.state.read_progress import load_replay_progress, replay_path
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.quarantined_records import QuarantinedRecord
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.event_batches import EventBatches, FileCounts


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
        unchanged_rows = []
        for record, raw in self._as_read(records):
            event = raw["event"] if raw is not None else None
            if raw is None or event is None:
                raise LakeError(
                    f"The raw record of {record.record_id} is missing in `{RAW}`, so replay is impossible. "
                    "Restore the lake from a backup, or report this."
                )
            if event["text"] is None:
                unchanged_rows.append(self._again(raw))
            else:
                self._decode(record, raw)
            self._step.advance()
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

    def _decode(self, record: QuarantinedRecord, raw: Mapping[str, Any]) -> None:
        origin, position = raw["event"]["origin"], raw["event"]["position"]
        window = ReadWindow(record.partition_token, 0, self._plan.end_micros)
        file = SourceFile(origin, record.partition_token, 0, 0)
        # The record stays in the transaction that counts it.
        transaction = raw["server_transaction_id"] if self._pipeline.capabilities.keeps_transactions else ""
        for event in self._pipeline.event_source.decode_again(origin, raw["event"]["text"], position):
            records = raw["number_of_records_in_transaction"]
            self._batches.add(_placed(event, record, position), window, file, transaction, records)


def _placed(
    event: SourceEvent | FaultyEvent, record: QuarantinedRecord, position: int
) -> SourceEvent | FaultyEvent:
    """Return an event at the position of its record; a faulty event also keeps the record's identity."""
    if isinstance(event, SourceEvent):
        return event._replace(position=position)
    event_id = event.event_id or record.sequence
    return replace(event, position=position, event_id=event_id, table=event.table or record.table)
