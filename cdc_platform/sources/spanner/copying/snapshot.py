"""Strong reads: the source's clock, and whole tables at one exact timestamp."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.copying.columns import values_to_batch
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk
from cdc_platform.sources.spanner.copying.copy_reader import read_values
from cdc_platform.sources.spanner.spanner_settings import Dialect

_CLOCK_SQL: Final = "SELECT UNIX_MICROS(CURRENT_TIMESTAMP())"
# PostgreSQL has no function for microseconds.
_POSTGRESQL_CLOCK_SQL: Final = "SELECT CURRENT_TIMESTAMP"


def clock_micros(client: SpannerClient) -> int:
    """Return the time of the source, from a strong read."""
    if client.dialect is Dialect.POSTGRESQL:
        return from_rfc3339(str(client.fetch_texts(Query(_POSTGRESQL_CLOCK_SQL))[0][0]))
    return int(str(client.fetch_texts(Query(_CLOCK_SQL))[0][0]))


def rows_at(client: SpannerClient, table: TableSchema, at_micros: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table at a timestamp, in the order of the primary key.

    Raises:
        RetentionExpired: the source no longer keeps that version.
        SourceError: the read failed otherwise.
    """
    for values in read_values(client, table, Chunk(at_micros)):
        yield values_to_batch(table, values)
