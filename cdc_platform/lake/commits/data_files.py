"""Data files that any process writes before another one commits them."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

FILE_BYTES: Final = 64 * 1024**2
"""Memory of the rows of one file; a process holds as many."""
DATA_FILE: Final = "data_file"
DATA_FILES: Final = pa.schema([(DATA_FILE, pa.binary())])


@dataclass(frozen=True)
class DataFileWriter:
    """Writes rows to new data files of a table without partitions, for a commit by the process that made it.

    It is pickled for Spark's tasks, with the credentials of the table's storage.
    """

    io: FileIO
    metadata: TableMetadata

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return the writer of a table, without the history of its metadata."""
        facts: dict[str, Any] = {name: [] for name in ("snapshots", "snapshot_log", "metadata_log")}
        metadata = table.metadata.model_copy(update=facts | {"refs": {}, "current_snapshot_id": None})
        return cls(table.io, metadata)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows, and yield the files as `DATA_FILES`, for `data_files_of`."""
        for file in self.write(batches):
            yield pa.record_batch([pa.array([pickle.dumps(file)], pa.binary())], schema=DATA_FILES)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write rows, and yield the files; there is none without rows."""
        for rows in _parts(batches):
            yield from _dataframe_to_data_files(self.metadata, rows, self.io)


def data_files_of(written: pa.Table) -> list[DataFile]:
    """Return the files that a `DataFileWriter` has written in tasks of this run."""
    return [cast("DataFile", pickle.loads(text)) for text in written[DATA_FILE].to_pylist()]  # noqa: S301  by our own tasks, never stored


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each file."""
    part: list[pa.RecordBatch] = []
    part_bytes = 0
    for batch in batches:
        if batch.num_rows:
            part.append(batch)
            part_bytes += batch.nbytes
        if part_bytes >= FILE_BYTES:
            yield pa.Table.from_batches(part)
            part, part_bytes = [], 0
    if part:
        yield pa.Table.from_batches(part)
