"""Raw records with their identities in the transaction buffer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS

TRANSACTION: Final = "split_transaction"
"""Transaction of a row in the transaction buffer; empty for rows that the buffer handles one by one."""
ORDER: Final = "split_order"
"""Ordering key of such a row; null if the row may always pass."""
MARKED_ROWS: Final = pa.schema([*RAW_EVENT_RECORDS, (TRANSACTION, pa.string()), (ORDER, pa.string())])
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def marked_rows(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], orders: Sequence[str | None]
) -> Iterator[pa.RecordBatch]:
    """Yield raw records with the transaction and order of each, as `MARKED_ROWS`."""
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        marks = (pa.array(values[start:end], pa.string()) for values in (names, orders))
        yield pa.RecordBatch.from_arrays([*batch.columns, *marks], schema=MARKED_ROWS)
        start = end


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
