"""Data files that Spark's tasks write in Python, and that the process that started them commits."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Protocol, Self, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.io.pyarrow import ParquetFormatWriter, _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from cdc_platform.lake.catalog.files import delete_files

GROUP_BYTES: Final = 32 * 1024**2
"""Memory of the rows of one row group of a file; a task holds as many."""
_BATCH_ROWS: Final = 1_000
"""Rows that take as long to copy as a batch to convert; smaller batches become one."""
DATA_FILE: Final = "data_file"
DATA_FILES: Final = pa.schema([(DATA_FILE, pa.binary())])


class FileNotes(Protocol):
    """Facts about the rows of one file, which its footer keeps."""

    def are_apart(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows have row groups of their own, so that reading them reads no others."""

    def add(self, rows: pa.Table) -> None:
        """Add the rows of one row group."""

    def texts(self) -> Mapping[str, str]:
        """Return the facts about all rows so far, by name."""


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
    notes: Callable[[], FileNotes] | None = None
    """Makes the notes of each file."""

    @classmethod
    def of(cls, table: Table, notes: Callable[[], FileNotes] | None = None) -> Self:
        """Return the writer of a table, without the history of its metadata."""
        facts: dict[str, Any] = {name: [] for name in ("snapshots", "snapshot_log", "metadata_log")}
        metadata = table.metadata.model_copy(update=facts | {"refs": {}, "current_snapshot_id": None})
        return cls(table.io, metadata, notes=notes)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows, and yield the file as `DATA_FILES`, for `data_files_of`."""
        for file in self.write(batches):
            yield pa.record_batch([pa.array([pickle.dumps(file)], pa.binary())], schema=DATA_FILES)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write rows to one file, and yield it; there is none without rows, nor after a failure."""
        notes = self.notes() if self.notes is not None else None
        groups = _row_groups(batches, notes)
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
                    if notes is not None:
                        notes.add(group)
                if notes is not None:
                    _add_notes(writer, notes.texts())
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
def data_file_writer(table: Table, notes: Callable[[], FileNotes] | None = None) -> Iterator[DataFileWriter]:
    """Yield a writer of data files; they are deleted if writing fails, or a full disk would stay full."""
    writer = DataFileWriter.of(table, notes)
    try:
        yield writer
    except Exception:
        writer.discard()
        raise


def _add_notes(writer: FileFormatWriter, notes: Mapping[str, str]) -> None:
    """Add entries to the footer of a file, for which pyiceberg's writer has no function."""
    parquet = cast("ParquetFormatWriter", writer)._writer  # noqa: SLF001  until it has one
    if parquet is not None:
        parquet.add_key_value_metadata(dict(notes))


def read_notes(io: FileIO, path: str) -> Mapping[str, str]:
    """Return the entries of a data file's footer, without the row groups."""
    with io.new_input(path).open() as file:
        entries = pq.read_metadata(file).metadata or {}
    return {name.decode(): text.decode() for name, text in entries.items()}


def data_files_of(entries: pa.Table) -> list[DataFile]:
    """Return the files that a `DataFileWriter` has written in tasks of this run."""
    return [cast("DataFile", pickle.loads(text)) for text in entries[DATA_FILE].to_pylist()]  # noqa: S301  by our own tasks, never stored


def _row_groups(batches: Iterable[pa.RecordBatch], notes: FileNotes | None) -> Iterator[pa.Table]:
    """Yield the rows of each row group."""
    groups = (_RowGroup(), _RowGroup())
    for batch in batches:
        for group, rows in zip(groups, _parted(batch, notes), strict=True):
            group.add(rows)
            if group.size_bytes >= GROUP_BYTES:
                yield group.take()
    yield from (group.take() for group in groups if group.batches)


def _parted(batch: pa.RecordBatch, notes: FileNotes | None) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    if notes is None or not batch.num_rows:
        return batch, batch.slice(0, 0)
    are_apart = notes.are_apart(batch)
    # Nearly all batches have one kind of rows, and a filter copies them.
    if not pc.any(are_apart).as_py():
        return batch, batch.slice(0, 0)
    return batch.filter(pc.invert(are_apart)), batch.filter(are_apart)


@dataclass
class _RowGroup:
    """Rows of one row group, in memory."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self.batches.append(rows)
            self.size_bytes += rows.nbytes

    def take(self) -> pa.Table:
        """Return the rows, and begin the next row group."""
        rows, count = pa.Table.from_batches(self.batches), len(self.batches)
        self.batches, self.size_bytes = [], 0
        return rows.combine_chunks() if rows.num_rows < count * _BATCH_ROWS else rows
