"""Data changes of events as Arrow batches of `RAW_EVENT_RECORDS`, built a column at a time."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_platform.model.records import RecordKind
from cdc_platform.model.schemas import EVENT, MOD, RAW_EVENT_RECORDS, TIMESTAMP


class ChangeRow(NamedTuple):
    """One data change without its nesting; fields are named as in `RAW_EVENT_RECORDS`, moments are micros.

    ``record_sequence`` is the `event_id`, too.
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


def to_batch(tick: int, rows: Sequence[ChangeRow]) -> pa.RecordBatch:
    """Return the batch of a tick's changes."""
    given = zip(_FIELDS, zip(*rows, strict=True), strict=True)
    told = {name: _array(values, _TYPES[name]) for name, values in given}
    told["event_id"] = told["record_sequence"]
    count = len(rows)
    columns = {name: told[name] for name in _PLAIN}
    columns["tick"] = pa.repeat(pa.scalar(tick, pa.int64()), count)
    columns["kind"] = pa.repeat(RecordKind.DATA_CHANGE.value, count)
    each_one = pa.array(np.arange(count + 1, dtype=np.int32))
    columns["mods"] = pa.ListArray.from_arrays(each_one, _struct(told, MOD), type=_MODS)
    columns["event"] = _struct(told, EVENT)
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in RAW_EVENT_RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_EVENT_RECORDS)


def _struct(told: Mapping[str, pa.Array], struct: pa.StructType) -> pa.StructArray:
    fields = list(struct)
    return pa.StructArray.from_arrays([told[field.name] for field in fields], fields=fields)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind) if kind == TIMESTAMP else pa.array(values, kind)
