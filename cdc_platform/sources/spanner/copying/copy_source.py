"""Spark data source of a table's copy: one task per chunk, typed Arrow batches."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.sources.loading import TaskReader
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

    def reader(self, schema: StructType) -> TaskReader:  # noqa: ARG002 - Spark's signature
        """Return the reader of the chunks in the options."""
        settings, columns = self.options[SETTINGS_OPTION], self.options[COLUMNS_OPTION]
        read = partial(_read_chunk, settings, columns, int(self.options[MICROS_OPTION]))
        return TaskReader(read, json.loads(self.options[CHUNKS_OPTION]))


def _read_chunk(settings_json: str, columns: str, at_micros: int, chunk: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one chunk."""
    # Imported here: only workers that read load Google's libraries, and only after the fork.
    from cdc_platform.sources.spanner.client.client import client_of
    from cdc_platform.sources.spanner.copying.copy_reader import read_chunk

    # The client of a worker process is reused by later tasks.
    return read_chunk(client_of(settings_json), columns_from_text(columns), Chunk.from_text(chunk, at_micros))
