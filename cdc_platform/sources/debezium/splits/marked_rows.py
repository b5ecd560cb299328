"""Raw records with their identities in the transaction buffer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.sources.event_batches import EventBatches

TRANSACTION: Final = "split_transaction"
"""Transaction of a row in the transaction buffer; empty for rows that the buffer handles one by one."""
ORDER: Final = "split_order"
"""Ordering key of such a row; null if the row may always pass."""
MARKED_ROWS: Final = pa.schema([*RAW_EVENT_RECORDS, (TRANSACTION, pa.string()), (ORDER, pa.string())])
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(slots=True)
class MarkedRows:
    """Collects the rows of a split, with the transaction and order of each."""

    batches: EventBatches
    _names: list[str] = field(default_factory=list)
    _orders: list[str | None] = field(default_factory=list)

    def mark(self, names: Sequence[str], orders: Sequence[str | None]) -> None:
        """Add the transactions and orders of rows that `batches` has got."""
        self._names += names
        self._orders += orders

    def take(self) -> Iterator[bytes]:
        """Yield the rows as octets of `MARKED_ROWS`, and start over."""
        names, orders = self._names, self._orders
        self._names, self._orders = [], []
        start = 0
        for batch in self.batches.take():
            end = start + batch.num_rows
            marks = (pa.array(values[start:end], pa.string()) for values in (names, orders))
            yield to_octets(pa.RecordBatch.from_arrays([*batch.columns, *marks], schema=MARKED_ROWS))
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
