"""Data files of new rows, each in its partition."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import _determine_partitions, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import Table, WriteTask
from pyiceberg.table.metadata import TableMetadata

from cdc_platform.lake.local_writer.key_lookup import ROW_ID

ROWS_PER_FILE: Final = 250_000
NO_BOUNDS: Final = {"write.metadata.metrics.default": "counts"}


def write_rows(table: Table, rows: pa.Table, uuid: UUID) -> Sequence[DataFile]:
    """Write rows to new data files."""
    metadata = _with_row_ids(table.metadata) if ROW_ID.name in rows.column_names else table.metadata
    tasks = [
        WriteTask(
            uuid, number, metadata.schema(), part.combine_chunks().to_batches(), partition_key=partition
        )
        for number, (partition, part) in enumerate(_split(metadata, rows))
    ]
    try:
        return list(write_file(table.io, metadata, iter(tasks)))
    except UnicodeEncodeError:
        # pyiceberg truncates the bounds of texts, and turns the letter U+D7FF at the end into a surrogate.
        without_bounds = metadata.model_copy(update={"properties": {**table.properties, **NO_BOUNDS}})
        return list(write_file(table.io, without_bounds, iter(tasks)))


def _split(metadata: TableMetadata, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    """Yield the rows of each new data file with its partition."""
    partitions: Iterable[tuple[PartitionKey | None, pa.Table]] = [(None, rows)]
    if not metadata.spec().is_unpartitioned() and rows.num_rows:
        of_partitions = _determine_partitions(metadata.spec(), metadata.schema(), rows)
        partitions = ((part.partition_key, part.arrow_table_partition) for part in of_partitions)
    for partition, part in partitions:
        for begin in range(0, part.num_rows, ROWS_PER_FILE):
            yield partition, part.slice(begin, ROWS_PER_FILE)


def _with_row_ids(metadata: TableMetadata) -> TableMetadata:
    """Return metadata for writing files that also have row ids."""
    schema = metadata.schema()
    wider = Schema(*schema.fields, ROW_ID, schema_id=schema.schema_id)
    return metadata.model_copy(update={"schemas": [wider]})
