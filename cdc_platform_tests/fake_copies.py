"""Initial copies from a source in memory: chunks that carry their rows, and Spark's way to them."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_platform.errors import AccessDenied, CopyExpired
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema

RowsAt = Callable[[str, int], Iterator[pa.RecordBatch]]
"""Table and moment to its rows."""

EXPIRED = "expired"


@dataclass
class FakePlans:
    """The moments that were planned, and what is to go wrong: tables by name."""

    moments: list[int] = field(default_factory=list)
    expiring: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)


class FakePlanner:
    """Cuts tables into chunks of so many rows."""

    def __init__(self, rows_at: RowsAt, plans: FakePlans, at_micros: int) -> None:
        self.rows_at, self.plans, self.at_micros = rows_at, plans, at_micros
        plans.moments.append(at_micros)

    def chunks(self, table: TableSchema, chunk_rows: int) -> tuple[str, ...]:
        """Return the chunks of a table at the moment; those that expire do so at the second one."""
        if table.name in self.plans.denied:
            raise AccessDenied(f"nobody may read {table.name}")
        rows = pa.Table.from_batches(
            self.rows_at(table.name, self.at_micros), schema=table_arrow_schema(table)
        )
        chunks = [_to_text(rows.slice(first, chunk_rows)) for first in range(0, len(rows), chunk_rows)]
        if table.name in self.plans.expiring:
            self.plans.expiring.remove(table.name)
            chunks[-1] = EXPIRED
        return tuple(chunks)


def _to_text(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def read_chunk(chunk: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk."""
    if chunk == EXPIRED:
        raise CopyExpired("the version is gone")
    with pa.ipc.open_stream(base64.b64decode(chunk)) as stream:
        yield from stream
