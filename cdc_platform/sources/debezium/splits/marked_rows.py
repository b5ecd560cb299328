"""Raw records with their identities in the transaction buffer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.sources.debezium.rows.plain_columns import PlainRun
from cdc_platform.sources.debezium.wire.message_contents import MOD_TYPES, READ
from cdc_platform.sources.event_columns import columns_batch

TRANSACTION: Final = "split_transaction"
"""Transaction of a row in the transaction buffer; empty for rows that the buffer handles one by one."""
ORDER: Final = "split_order"
"""Ordering key of such a row; null if the row may always pass."""
MARKED_ROWS: Final = pa.schema([*RAW_EVENT_RECORDS, (TRANSACTION, pa.string()), (ORDER, pa.string())])
_NEW_ROW: Final = ValueCaptureType.NEW_ROW.value
_NEW_VALUES: Final = ValueCaptureType.NEW_VALUES.value
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def marked_rows(
    batches: Iterable[pa.RecordBatch], marks: Sequence[tuple[str, str | None]]
) -> Iterator[pa.RecordBatch]:
    """Yield raw records with the transaction and order of each, as `MARKED_ROWS`."""
    start = 0
    for batch in batches:
        names, orders = zip(*marks[start : start + batch.num_rows], strict=True)
        start += batch.num_rows
        yield with_marks(batch, names, orders)


def with_marks(batch: pa.RecordBatch, names: Sequence[str], orders: Sequence[str | None]) -> pa.RecordBatch:
    """Return raw records with the transaction and order of each, as `MARKED_ROWS`."""
    columns = [*batch.columns, pa.array(names, pa.string()), pa.array(orders, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=MARKED_ROWS)


def run_batch(
    run: PlainRun, paths: Sequence[str], records: Sequence[int], window: ReadWindow, cycle: int
) -> pa.RecordBatch:
    """Return the raw records of plain changes.

    Args:
        run: the changes.
        paths: file or partition of each.
        records: number of events of the transaction of each.
        window: their window.
        cycle: the cycle.
    """
    columns = {
        "partition_token": window.token,
        "record_timestamp": window.end_inclusive_micros,
        "record_sequence": run.event_ids,
        "record_order": run.ordering_keys,
        "server_transaction_id": run.event_ids if run.form.op is READ else run.transaction_ids,
        "table_name": run.form.table,
        "origin": paths,
        "position": run.positions,
        "metadata": run.metadata,
        "number_of_records_in_transaction": records,
        "mod_type": MOD_TYPES[run.form.op].value,
        "value_capture_type": [_NEW_VALUES if names else _NEW_ROW for names in run.unavailable_columns],
        "column_types": run.form.plan.column_types,
        "keys": run.keys,
        "new_values": run.new_values,
        "old_values": run.old_values,
        "source_timestamp": run.micros,
        "unavailable_columns": [names or None for names in run.unavailable_columns],
    }
    return columns_batch(cycle, len(run.keys), columns)


def to_octets(batch: pa.RecordBatch) -> bytes:
    """Return a batch as octets for `from_octets`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def from_octets(octets: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the batches of octets from `to_octets`."""
    with pa.ipc.open_stream(octets) as reader:
        yield from reader
