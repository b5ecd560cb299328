"""Data changes of events as Arrow batches of `RAW_EVENT_RECORDS`, built column by column."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.schemas import EVENT, MOD, RAW_EVENT_RECORDS, TIMESTAMP
from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.sources.sound_rows import (
    MAX_TEXT_CHARACTERS,
    UNFIT,
    safe_text,
    safe_value,
    sound_batches,
    unfit_reason,
)


class ChangeRow(NamedTuple):
    """One flat data change; fields are named as in `RAW_EVENT_RECORDS`, times are microseconds.

    ``record_sequence`` is also the `event_id`.
    """

    partition_token: str
    record_timestamp: int
    record_sequence: str
    record_order: str
    server_transaction_id: str
    table_name: str | None
    origin: str
    position: int | None
    metadata: str | None
    number_of_records_in_transaction: int | None = None
    mod_type: str | None = None
    value_capture_type: str | None = None
    column_types: str | None = None
    keys: str | None = None
    new_values: str | None = None
    old_values: str | None = None
    source_timestamp: int | None = None
    previous_keys: str | None = None
    unavailable_columns: Sequence[str] | None = None
    fault: str | None = None
    text: str | None = None


_FIELDS: Final = ChangeRow._fields
_PLAIN: Final = tuple(field.name for field in RAW_EVENT_RECORDS if field.name in _FIELDS)
_TYPES: Final = {
    field.name: field.type for field in (*EVENT, *MOD, *RAW_EVENT_RECORDS) if field.name in _FIELDS
}
_MODS: Final = RAW_EVENT_RECORDS.field("mods").type


def to_batches(cycle: int, rows: Sequence[ChangeRow]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a cycle's changes; one that Arrow cannot hold becomes a fault."""
    return sound_batches(lambda some: _batch(cycle, some), rows, _fault)


class ChangeColumns:
    """Collects data changes by the fields of `ChangeRow`.

    Attributes:
        count: number of changes.
    """

    def __init__(self) -> None:
        self.count = 0
        self._values: dict[str, Any] = dict.fromkeys(_FIELDS)

    def add(self, count: int, values: Mapping[str, object]) -> None:
        """Add changes, with the values of `columns_batch`."""
        for name, column in self._values.items():
            value: Any = values.get(name)
            is_shared = not isinstance(value, list | tuple)
            if is_shared and (self.count == 0 or (not isinstance(column, list) and column == value)):
                self._values[name] = value
            else:
                all_before = column if isinstance(column, list) else [column] * self.count
                self._values[name] = all_before
                all_before += [value] * count if is_shared else value
        self.count += count

    def to_batches(self, cycle: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a cycle's changes; one that Arrow cannot hold becomes a fault."""
        try:
            yield columns_batch(cycle, self.count, self._values)
        except UNFIT:
            columns = (
                column if isinstance(column, list) else [column] * self.count
                for column in self._values.values()
            )
            yield from to_batches(cycle, list(map(ChangeRow._make, zip(*columns, strict=True))))


def _fault(row: ChangeRow, error: Exception) -> ChangeRow:
    """Return a fault with the known parts of a change and its values as text."""
    fields = row._asdict()
    place = {name: safe_value(value) for name, value in fields.items() if name not in _CHANGE}
    if row.source_timestamp is not None and not is_moment(row.source_timestamp):
        place["source_timestamp"] = None
    if row.metadata is not None:
        place["metadata"] = safe_text(row.metadata, MAX_TEXT_CHARACTERS)
    values = {name: value for name, value in fields.items() if value is not None}
    text = row.text or json.dumps(values, default=str)
    return ChangeRow(
        **place,
        fault=safe_text(row.fault or unfit_reason(values, error)),
        text=safe_text(text, MAX_TEXT_CHARACTERS),
    )


_CHANGE: Final = frozenset(
    {
        *("mod_type", "value_capture_type", "column_types", "keys", "new_values", "old_values"),
        *("previous_keys", "unavailable_columns", "fault", "text"),
    }
)
"""Columns of a change that a fault lacks."""


def _batch(cycle: int, rows: Sequence[ChangeRow]) -> pa.RecordBatch:
    return columns_batch(cycle, len(rows), dict(zip(_FIELDS, zip(*rows, strict=True), strict=True)))


def columns_batch(cycle: int, count: int, values: Mapping[str, object]) -> pa.RecordBatch:
    """Return the batch of a cycle's changes.

    ``values`` has, by field of `ChangeRow`, the values of all ``count`` changes, or one that all have; a
    missing field is null.
    """
    by_name = {name: _column(values.get(name), _TYPES[name], count) for name in _FIELDS}
    by_name["event_id"] = by_name["record_sequence"]
    columns = {name: by_name[name] for name in _PLAIN}
    columns["cycle"] = pa.repeat(pa.scalar(cycle, pa.int64()), count)
    columns["kind"] = pa.repeat(RecordKind.DATA_CHANGE.value, count)
    each_one = pa.array(np.arange(count + 1, dtype=np.int32))
    columns["mods"] = pa.ListArray.from_arrays(each_one, _struct(by_name, MOD), type=_MODS)
    columns["event"] = _struct(by_name, EVENT)
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in RAW_EVENT_RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_EVENT_RECORDS)


def _column(values: object, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(values, list | tuple):
        return _array(values, kind)
    return pa.nulls(count, kind) if values is None else pa.repeat(_array([values], kind)[0], count)


def _struct(arrays: Mapping[str, pa.Array], struct: pa.StructType) -> pa.StructArray:
    fields = list(struct)
    return pa.StructArray.from_arrays([arrays[field.name] for field in fields], fields=fields)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind != TIMESTAMP:
        return pa.array(values, kind)
    moments = pa.array(values, pa.int64())
    if not all(bound is None or is_moment(bound) for bound in pc.min_max(moments).as_py().values()):
        raise OverflowError("`source_timestamp` is outside the years 1 to 9999")
    return moments.cast(kind)
