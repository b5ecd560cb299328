"""Records of a window as Arrow batches of `RAW_CHANGE_RECORDS`, built column by column."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.schemas import CHILD_PARTITION, MOD, RAW_CHANGE_RECORDS
from cdc_platform.model.stream.lineage import ChildAnnouncement
from cdc_platform.model.stream.read_windows import ReadWindow, WindowReport
from cdc_platform.sources.sound_rows import MAX_TEXT_CHARACTERS, safe_text, safe_value, sound_batches
from cdc_platform.sources.spanner.client.placements import lists_partitions
from cdc_platform.sources.spanner.stream.record_rows import (
    CHILDREN,
    DATA,
    END,
    HEARTBEAT,
    MOD_PARTS,
    START,
    RecordRow,
)

_COLUMN: Final = {name: position for position, name in enumerate(RecordRow._fields)}
_KIND: Final = _COLUMN["kind"]
_MICROS: Final = _COLUMN["record_timestamp"]
_NESTED: Final = ("mods", "child_partitions")
RECORDS_PER_BATCH: Final = 8192
TEXT_BYTES_PER_BATCH: Final = 4 * 1024 * 1024
"""A task reads several windows at a time, each with its own batch."""


class RecordBatchBuilder:
    """Collects the records of one window and returns them as batches.

    Records of a partition are ordered by timestamp. When one arrives, everything before its timestamp is
    complete, and at a heartbeat everything up to its timestamp: `complete_micros` is that limit.
    `starts_later` is true if partitions start after the end of the window.
    """

    def __init__(self, cycle: int, window: ReadWindow) -> None:
        self.complete_micros = window.start_exclusive_micros
        self.child_micros: int | None = None
        self.end_micros: int | None = None
        self.starts_later = False
        self.counts: Counter[str] = Counter()
        self._text_bytes = 0
        self._cycle, self._window = cycle, window
        self._rows: list[tuple[Any, ...]] = []
        self._complete_rows = 0
        self._children: dict[str, ChildAnnouncement] = {}

    @property
    def is_full(self) -> bool:
        """Whether there is a batch to take: no record of a large transaction is complete before its last."""
        is_large = len(self._rows) >= RECORDS_PER_BATCH or self._text_bytes >= TEXT_BYTES_PER_BATCH
        return is_large and self._complete_rows > 0

    @property
    def extent(self) -> tuple[int, int]:
        """Progress of the read, which grows with every new record."""
        return self.complete_micros, self.counts.total() + len(self._rows)

    @property
    def is_closed(self) -> bool:
        """Whether no more records can follow in this window; after children, more of them may follow."""
        return self.end_micros is not None or self.complete_micros >= self._window.end_inclusive_micros

    @property
    def children(self) -> tuple[ChildAnnouncement, ...]:
        """Children that the partition has announced so far."""
        return tuple(self._children.values())

    def add(self, rows: Iterable[RecordRow]) -> None:
        """Add records, without those after the end of the window, which the next window reads.

        Raises:
            RecordUnreadable: the initial query returned data, which belongs to a partition.
        """
        end_micros = self._window.end_inclusive_micros
        for row in rows:
            micros = row.record_timestamp
            if micros > end_micros:
                self._complete(end_micros)
                self.starts_later |= row.kind == START
                continue
            if micros > self.complete_micros + 1:
                self._complete(micros - 1)
            self._rows.append(tuple(row))
            if row.kind == DATA:
                if lists_partitions(self._window.token):
                    raise _data_in_root(row)
                self._text_bytes += sum(map(len, filter(None, row.mods or ())))
            elif row.kind == HEARTBEAT and micros > self.complete_micros:
                self._complete(micros)
            elif row.kind in (CHILDREN, START):
                self._announce(row)
            elif row.kind == END:
                self._complete(micros)
                self.end_micros = micros

    def announce_itself(self) -> pa.RecordBatch:
        """Return the announcement of a placement, which no partition announces."""
        token = self._window.token
        start_micros = self._window.start_exclusive_micros + 1
        row = RecordRow(START, start_micros, child_partitions=[(token, [token])])
        return self._pop_batch([tuple(row)])

    def take_complete(self) -> pa.RecordBatch:
        """Return the records up to `complete_micros` and keep the others."""
        rows, self._rows = self._rows[: self._complete_rows], self._rows[self._complete_rows :]
        return self._pop_batch(rows)

    def take_all(self) -> pa.RecordBatch:
        """Return all records, which are complete because the read has ended."""
        rows, self._rows = self._rows, []
        return self._pop_batch(rows)

    def forget_incomplete(self) -> None:
        """Drop the records after `complete_micros`, which the next read returns again."""
        self._rows = [row for row in self._rows if row[_MICROS] <= self.complete_micros]
        self._complete_rows = len(self._rows)
        if self.child_micros is not None and self.child_micros > self.complete_micros:
            self.child_micros = None
        self._children = {
            token: child
            for token, child in self._children.items()
            if child.start_micros <= self.complete_micros
        }

    def _announce(self, row: RecordRow) -> None:
        micros = row.record_timestamp
        if row.kind == CHILDREN or lists_partitions(self._window.token):
            self.child_micros = micros if self.child_micros is None else min(micros, self.child_micros)
        for child in row.child_partitions or ():
            announcement = ChildAnnouncement.of(
                self._cycle,
                micros,
                child,
                announced_by=self._window.token,
                continues_parents=row.kind == CHILDREN,
            )
            self._children[announcement.token] = announcement

    def _complete(self, micros: int) -> None:
        self.complete_micros = micros
        self._complete_rows = len(self._rows)

    def _pop_batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        self._complete_rows = 0
        self._text_bytes = 0
        self.counts.update(row[_KIND] for row in rows)
        return to_batch(self._cycle, self._window.token, rows)


def _data_in_root(row: RecordRow) -> RecordUnreadable:
    return RecordUnreadable(
        "The initial query, which only lists the first partitions, has returned a data change "
        f"record; update the platform, or report it. Transaction: {row.server_transaction_id}",
    )


def to_batch(cycle: int, token: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return records as one batch; the log rejects a record that Arrow cannot hold, with its transaction."""
    return pa.concat_batches(sound_batches(lambda some: _batch(cycle, token, some), rows, _fault))


def _fault(row: tuple[Any, ...], _error: Exception) -> tuple[Any, ...]:
    """Return a malformed record with escaped texts, and without the count that the log requires.

    It has no column types, because parsing them would undo the escapes.
    """
    record = RecordRow(*map(safe_value, row))
    mods = (
        None
        if record.mods is None
        else tuple(part and safe_text(part, MAX_TEXT_CHARACTERS) for part in record.mods)
    )
    return tuple(record._replace(mods=mods, column_types=None, number_of_records_in_transaction=None))


def _batch(cycle: int, token: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMN)
    count = len(rows)
    arrays = {
        "cycle": pa.repeat(pa.scalar(cycle, pa.int64()), count),
        "partition_token": pa.repeat(pa.scalar(token, pa.string()), count),
        "mods": _mods(columns[_COLUMN["mods"]]),
        "child_partitions": _children(columns[_COLUMN["child_partitions"]]),
        "read_window": pa.nulls(count, RAW_CHANGE_RECORDS.field("read_window").type),
    }
    for name, position in _COLUMN.items():
        if name not in _NESTED:
            arrays[name] = pa.array(columns[position], RAW_CHANGE_RECORDS.field(name).type)
    in_order = [arrays[name] for name in RAW_CHANGE_RECORDS.names]
    return pa.RecordBatch.from_arrays(in_order, schema=RAW_CHANGE_RECORDS)


def window_batch(cycle: int, report: WindowReport, counts: Counter[str]) -> pa.RecordBatch:
    """Return the raw record that reports the outcome of a read window."""
    row = report.to_row(cycle, counts[DATA], counts[HEARTBEAT], counts[CHILDREN] + counts[START])
    return pa.RecordBatch.from_pylist([row], schema=RAW_CHANGE_RECORDS)


def _mods(lists: Sequence[Any]) -> pa.Array:
    texts = list(chain.from_iterable(parts for parts in lists if parts))
    arrays = [pa.array(texts[part::MOD_PARTS], pa.string()) for part in range(MOD_PARTS)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(MOD))
    return _list_array(lists, structs, MOD_PARTS)


def _children(lists: Sequence[Any]) -> pa.Array:
    children = list(chain.from_iterable(items for items in lists if items))
    tokens = pa.array([token for token, _ in children], pa.string())
    parents = pa.array([parents for _, parents in children], pa.list_(pa.string()))
    structs = pa.StructArray.from_arrays([tokens, parents], fields=list(CHILD_PARTITION))
    return _list_array(lists, structs, 1)


def _list_array(lists: Sequence[Any], values: pa.Array, parts: int) -> pa.Array:
    """Return the values grouped into lists, one value per ``parts`` items; None becomes NULL."""
    ends = accumulate((len(items) // parts if items else 0 for items in lists), initial=0)
    offsets = pa.array(ends, pa.int32())
    mask = pa.array([items is None for items in lists], pa.bool_())
    return pa.ListArray.from_arrays(offsets, values, mask=mask)
