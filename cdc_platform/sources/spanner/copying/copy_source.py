"""Reads of a table's copy: one task per chunk, typed Arrow batches."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from cdc_platform.model.base.stored_names import COPIES
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk
from cdc_platform.sources.task_plan import TaskPlan


def plan_copy_tasks(
    settings_json: str, table: TableSchema, at_micros: int, chunks: Sequence[str]
) -> TaskPlan:
    """Return the read of the chunks of a table as of a moment.

    Raises:
        LakeDamaged: the planner did not write some chunk.
    """
    parse = partial(Chunk.from_text, at_micros=at_micros)
    parts = [read_stored(parse, text, COPIES, f"a chunk of `{table.name}`: {text}") for text in chunks]
    return TaskPlan(table_arrow_schema(table), partial(_read_chunk, settings_json, table), parts)


def _read_chunk(settings_json: str, table: TableSchema, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one chunk."""
    # Imported here: only workers that read load Google's libraries, and only after the fork.
    from cdc_platform.sources.spanner.client.client import client_of
    from cdc_platform.sources.spanner.copying.copy_reader import read_chunk

    # The client of a worker process is reused by later tasks.
    return read_chunk(client_of(settings_json), table, chunk)
