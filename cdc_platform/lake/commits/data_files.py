"""Data files that Spark's tasks write in Python, and that the process that started them commits."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Self, cast
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from cdc_platform.lake.catalog.files import delete_files

GROUP_BYTES: Final = 32 * 1024**2
"""Memory of the rows of one row group of a file; a task holds as many."""
DATA_FILE: Final = "data_file"
DATA_FILES: Final = pa.schema([(DATA_FILE, pa.binary())])


@dataclass(frozen=True)
class DataFileWriter:
    """Writes rows to new data files of a table without partitions, for a commit by the process that made it.

    It is pickled for Spark's tasks, with the credentials of the table's storage, and with the settings of a
    REST catalog that vends them.
    """

    io: FileIO
    metadata: TableMetadata
    token: str = field(default_factory=lambda: uuid4().hex)
    """The beginning of the names of its files."""

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return the writer of a table, without the history of its metadata."""
        facts: dict[str, Any] = {name: [] for name in ("snapshots", "snapshot_log", "metadata_log")}
        metadata = table.metadata.model_copy(update=facts | {"refs": {}, "current_snapshot_id": None})
        return cls(table.io, metadata)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows, and yield the file as `DATA_FILES`, for `data_files_of`."""
        for file in self.write(batches):
            yield pa.record_batch([pa.array([pickle.dumps(file)], pa.binary())], schema=DATA_FILES)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write rows to one file, and yield it; there is none without rows, nor after a failure."""
        groups = _row_groups(batches)
        first = next(groups, None)
        if first is None:
            return
        model, properties = FileFormatFactory.get(FileFormat.PARQUET), self.metadata.properties
        locations = load_location_provider(self.metadata.location, properties)
        output = self.io.new_output(locations.new_data_location(f"{self.token}-{uuid4().hex}.parquet"))
        try:
            with model.create_writer(output, self.metadata.schema(), properties) as writer:
                for group in chain((first,), groups):
                    writer.write(self._as_stored(group))
            statistics, size_bytes = writer.result(), len(output)
        except BaseException:
            with suppress(Exception):
                self.io.delete(output.location)
            raise
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=output.location,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=size_bytes,
            spec_id=self.metadata.default_spec_id,
            **statistics.to_serialized_dict(),
        )

    def discard(self) -> None:
        """Delete the files that were written, as far as possible; none of them may have been committed."""
        with suppress(Exception):
            delete_files(self.io, f"{self.metadata.location}/data", self.token)

    def _as_stored(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the table and their ids."""
        schema = self.metadata.schema()
        rows_schema = pyarrow_to_schema(rows.schema, name_mapping=schema.name_mapping)
        model = FileFormatFactory.get(FileFormat.PARQUET)
        return pa.Table.from_batches(
            _to_requested_schema(
                requested_schema=schema,
                file_schema=rows_schema,
                batch=batch,
                include_field_ids=True,
                format_model=model,
            )
            for batch in rows.to_batches()
        )


@contextmanager
def data_file_writer(table: Table) -> Iterator[DataFileWriter]:
    """Yield the writer of a table's files, which go if writing fails: a full disk would stay full."""
    writer = DataFileWriter.of(table)
    try:
        yield writer
    except Exception:
        writer.discard()
        raise


def data_files_of(written: pa.Table) -> list[DataFile]:
    """Return the files that a `DataFileWriter` has written in tasks of this run."""
    return [cast("DataFile", pickle.loads(text)) for text in written[DATA_FILE].to_pylist()]  # noqa: S301  by our own tasks, never stored


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each row group."""
    group: list[pa.RecordBatch] = []
    group_bytes = 0
    for batch in batches:
        if batch.num_rows:
            group.append(batch)
            group_bytes += batch.nbytes
        if group_bytes >= GROUP_BYTES:
            yield pa.Table.from_batches(group).combine_chunks()
            group, group_bytes = [], 0
    if group:
        yield pa.Table.from_batches(group).combine_chunks()
