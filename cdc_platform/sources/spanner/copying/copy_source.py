"""Chunks of a table's copy as a data source of Spark: one task per chunk, typed Arrow batches."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, columns_from_text

FORMAT_NAME: Final = "spanner_table_copy"
SETTINGS_OPTION: Final = "settings"
COLUMNS_OPTION: Final = "columns"
MICROS_OPTION: Final = "at_micros"
CHUNKS_OPTION: Final = "chunks"


class TableCopyDataSource(DataSource):
    """Format `spanner_table_copy`; options are `settings`, `columns`, `at_micros` and `chunks`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the columns of the table."""
        from cdc_platform.sources.spanner.copying.snapshot import table_arrow_schema

        return from_arrow_schema(table_arrow_schema(columns_from_text(self.options[COLUMNS_OPTION])))

    def reader(self, schema: StructType) -> "TableCopyReader":  # noqa: ARG002 - Spark's signature
        """Return the reader of the chunks that the options name."""
        return TableCopyReader(
            self.options[SETTINGS_OPTION],
            self.options[COLUMNS_OPTION],
            int(self.options[MICROS_OPTION]),
            json.loads(self.options[CHUNKS_OPTION]),
        )


@dataclass(frozen=True)
class ChunkPartition(InputPartition):
    """The input of one task."""

    value: str


class TableCopyReader(DataSourceReader):
    """Reads chunks in the workers; the client of a worker process outlives its tasks."""

    def __init__(self, settings_json: str, columns: str, at_micros: int, chunks: Sequence[str]) -> None:
        self._settings_json, self._columns = settings_json, columns
        self._at_micros, self._chunks = at_micros, chunks

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per chunk."""
        return [ChunkPartition(chunk) for chunk in self._chunks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one chunk."""
        # Imported here: only workers that read load Google's libraries, and after they were forked.
        from cdc_platform.sources.spanner.client.client import client_of
        from cdc_platform.sources.spanner.copying.copy_reader import read_chunk

        chunk = Chunk.from_text(partition.value, self._at_micros)
        yield from read_chunk(client_of(self._settings_json), columns_from_text(self._columns), chunk)
