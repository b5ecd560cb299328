"""Arrow batches of `RAW_EVENT_RECORDS` from events, and the rows that report on a read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pyarrow as pa

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.base.timestamps import is_moment, to_datetime
from cdc_platform.model.stream.events import ChangeRun, FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.model.stream.files import SourceFile, identity_in_file
from cdc_platform.model.stream.read_windows import ReadWindow, WindowReport
from cdc_platform.model.stream.records import ModType, RecordKind, ValueCaptureType
from cdc_platform.sources.event_columns import ChangeColumns, ChangeRow, to_batches
from cdc_platform.sources.sound_rows import MAX_TEXT_CHARACTERS, escape, safe_text

BATCH_ROWS: Final = 8_192
BATCH_CHARACTERS: Final = 16_000_000
"""Approximate size of a batch's values and faulty texts; Spark holds a few batches at a time."""
_NAMES: Final = tuple(RAW_EVENT_RECORDS.names)
# Much faster than reading `value` of each.
_MOD_TYPES: Final = {kind: kind.value for kind in ModType}
_NEW_ROW: Final = ValueCaptureType.NEW_ROW.value
_NEW_VALUES: Final = ValueCaptureType.NEW_VALUES.value


class FileCounts(msgspec.Struct, gc=False):
    """Number of the events in a file, and of those that are faulty."""

    events: int = 0
    faults: int = 0


class EventBatches:
    """Collects the rows of one task, and returns them as batches."""

    def __init__(self, cycle: int) -> None:
        self._cycle = cycle
        self._changes: list[ChangeRow] = []
        self._columns = ChangeColumns()
        self._characters = 0
        self._rows: list[dict[str, Any]] = []

    def add(
        self,
        event: SourceEvent | FaultyEvent,
        window: ReadWindow,
        file: SourceFile,
        transaction_id: str = "",
        records: int | None = None,
    ) -> None:
        """Add an event.

        Args:
            event: the event.
            window: its window.
            file: its file or partition.
            transaction_id: its transaction; empty for the one that it states.
            records: number of events of the transaction; None if it is unknown.
        """
        place = window, file, transaction_id, records
        row = _of_event(event, *place) if isinstance(event, SourceEvent) else _of_fault(event, *place)
        self._changes.append(row)
        self._characters += len(row.new_values or "") + len(row.old_values or "") + len(row.text or "")

    def add_run(
        self,
        run: ChangeRun,
        window: ReadWindow,
        origins: str | Sequence[str],
        records: Sequence[int] | None = None,
    ) -> None:
        """Add changes.

        Args:
            run: the changes.
            window: their window.
            origins: path of the file of each, or of all.
            records: number of events of the transaction of each; None if it is unknown.
        """
        self._columns.add(len(run), _columns_of(run, window, origins, records))
        for texts in (run.new_values or (), run.old_values or ()):
            self._characters += sum(map(len, texts))

    def add_message(self, message: SourceMessage, window: ReadWindow, file: SourceFile) -> None:
        """Add a message of a file."""
        fields = {"prefix": message.prefix, "content": message.content, "lsn": message.lsn}
        fields |= {"transaction": message.transaction_id or None}
        event_id, transaction_id = escape(message.event_id), escape(message.transaction_id)
        row = self._row(RecordKind.MESSAGE, window)
        row |= {"record_sequence": event_id, "record_order": message.ordering_key}
        row["server_transaction_id"] = transaction_id or event_id
        row["event"] = _event(
            source_timestamp=_moment(message.source_micros),
            event_id=event_id,
            origin=file.path,
            position=message.position,
            metadata=escape(json.dumps(fields, ensure_ascii=False)),
        )
        self._rows.append(row)

    def report_file(
        self,
        window: ReadWindow,
        file: SourceFile,
        counts: FileCounts,
        error: str | None = None,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Add the report on a file; a file with an error has not been read, and is read again.

        Args:
            window: the window that the file belongs to.
            file: the file.
            counts: the counts of its events.
            error: the reason why it could not be read.
            further: other members of the report, by name; None and empty lists are left out.
        """
        fields = {"version": file.version, "is_read": error is None, "events": counts.events}
        fields |= {"faults": counts.faults, "size_bytes": file.size_bytes, "error": error}
        fields |= {name: value for name, value in further.items() if value not in (None, [])}
        row = self._row(RecordKind.FILE, window)
        row["event"] = _event(origin=file.path, metadata=json.dumps(fields))
        self._rows.append(row)

    def report_window(self, report: WindowReport, records: int, announced: int = 0) -> None:
        """Add the report on a window, with the numbers of its events and of its new partitions."""
        self._rows.append(report.to_row(self._cycle, records, 0, announced))

    def announce(self, token: str, window: ReadWindow) -> None:
        """Add a new partition, found in a window of another partition, that has no parent."""
        row = self._row(RecordKind.CHILD_PARTITIONS, window)
        row["record_timestamp"] = to_datetime(window.start_exclusive_micros + 1)
        row["child_partitions"] = [{"token": token, "parent_partition_tokens": [token]}]
        self._rows.append(row)

    @property
    def is_full(self) -> bool:
        """Whether the collected rows fill a batch."""
        return len(self._changes) + self._columns.count >= BATCH_ROWS or self._characters >= BATCH_CHARACTERS

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rows as batches, in any order, and start over."""
        changes, columns = self._changes, self._columns
        self._changes, self._columns, self._characters = [], ChangeColumns(), 0
        if columns.count:
            yield from columns.to_batches(self._cycle)
        if changes:
            yield from to_batches(self._cycle, changes)
        if self._rows:
            rows, self._rows = self._rows, []
            reports = {name: [row.get(name) for row in rows] for name in _NAMES}
            yield from pa.table(reports, RAW_EVENT_RECORDS).to_batches()

    def _row(self, kind: RecordKind, window: ReadWindow) -> dict[str, Any]:
        return {
            "cycle": self._cycle,
            "kind": kind.value,
            "partition_token": window.token,
            "record_timestamp": to_datetime(window.end_inclusive_micros),
        }


def _of_event(
    event: SourceEvent, window: ReadWindow, file: SourceFile, transaction_id: str, records: int | None
) -> ChangeRow:
    return ChangeRow(
        window.token,
        window.end_inclusive_micros,
        event.event_id,
        event.ordering_key,
        transaction_id or event.transaction_id or event.event_id,
        event.table,
        file.path,
        event.position,
        event.metadata,
        records,
        _MOD_TYPES[event.mod_type],
        _NEW_VALUES if event.unavailable_columns else _NEW_ROW,
        event.column_types,
        event.keys,
        event.new_values,
        event.old_values,
        event.source_micros,
        event.previous_keys,
        event.unavailable_columns or None,
    )


def _columns_of(
    run: ChangeRun, window: ReadWindow, origins: str | Sequence[str], records: Sequence[int] | None
) -> Mapping[str, object]:
    """Return changes by the fields of `ChangeRow`."""
    transactions, unavailable = run.transaction_ids, run.unavailable_columns
    return {
        "partition_token": window.token,
        "record_timestamp": window.end_inclusive_micros,
        "record_sequence": run.event_ids,
        "record_order": run.ordering_keys,
        "server_transaction_id": transactions
        if all(transactions)
        else [transaction or event for transaction, event in zip(transactions, run.event_ids, strict=True)],
        "table_name": run.table,
        "origin": origins,
        "position": run.positions,
        "metadata": run.metadata,
        "number_of_records_in_transaction": records,
        "mod_type": _MOD_TYPES[run.mod_type],
        "value_capture_type": [_NEW_VALUES if names else _NEW_ROW for names in unavailable] or _NEW_ROW,
        "column_types": run.column_types,
        "keys": run.keys,
        "new_values": run.new_values,
        "old_values": run.old_values,
        "source_timestamp": run.source_micros,
        "unavailable_columns": [names or None for names in unavailable] or None,
    }


def _of_fault(
    fault: FaultyEvent, window: ReadWindow, file: SourceFile, transaction_id: str, records: int | None
) -> ChangeRow:
    place = "file" if fault.position is None else str(fault.position)
    event_id = fault.event_id or identity_in_file(file, place)
    return ChangeRow(
        partition_token=window.token,
        record_timestamp=window.end_inclusive_micros,
        record_sequence=event_id,
        record_order=fault.ordering_key,
        server_transaction_id=transaction_id or event_id,
        number_of_records_in_transaction=records,
        table_name=fault.table and safe_text(fault.table),
        column_types=fault.column_types,
        source_timestamp=fault.source_micros,
        origin=file.path,
        position=fault.position,
        metadata=fault.metadata,
        fault=safe_text(fault.reason),
        text=safe_text(fault.text, MAX_TEXT_CHARACTERS),
    )


_EVENT_FIELDS: Final = tuple(field.name for field in RAW_EVENT_RECORDS.field("event").type)


def _event(**fields: object) -> Mapping[str, object]:
    return {name: fields.get(name) for name in _EVENT_FIELDS}


def _moment(micros: int | None) -> object:
    return None if micros is None or not is_moment(micros) else to_datetime(micros)
