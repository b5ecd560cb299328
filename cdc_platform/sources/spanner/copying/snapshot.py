"""Strong reads: the source's clock, and whole tables at one exact timestamp."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from cdc_platform.errors import SourceUnreachable
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query, quote_name
from cdc_platform.sources.spanner.copying.columns import arrow_type, to_arrow
from cdc_platform.sources.spanner.settings import Dialect

ROWS_PER_BATCH: Final = 10_000
TABLE_DEADLINE_S: Final = 3600.0
"""Longest read of one table; Spanner keeps old versions for an hour unless it is told otherwise."""

_CLOCK_SQL: Final = "SELECT UNIX_MICROS(CURRENT_TIMESTAMP())"
# PostgreSQL has no function for microseconds.
_POSTGRESQL_CLOCK_SQL: Final = "SELECT CURRENT_TIMESTAMP"


def clock_micros(client: SpannerClient) -> int:
    """Return the time of the source, by a strong read."""
    if client.dialect is Dialect.POSTGRESQL:
        return from_rfc3339(str(client.fetch_texts(Query(_POSTGRESQL_CLOCK_SQL))[0][0]))
    return int(str(client.fetch_texts(Query(_CLOCK_SQL))[0][0]))


def rows_at(client: SpannerClient, table: TableSchema, at_micros: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table as they were at the timestamp, in the order of the primary key.

    Raises:
        RetentionExpired: The source no longer keeps that version.
        SourceError: The read failed otherwise.
    """
    attempts = client.attempts()
    query = Query(_table_sql(table, client.dialect), read_micros=at_micros)
    given = 0
    while True:
        try:
            for batch in _batches(client, query, table, given):
                given += batch.num_rows
                attempts.progressed()
                yield batch
        except SourceUnreachable as error:
            attempts.failed(error)
        else:
            return


def table_arrow_schema(table: TableSchema) -> pa.Schema:
    """Return the Arrow schema of the table's rows."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


def _table_sql(table: TableSchema, dialect: Dialect) -> str:
    # The order lets an interrupted read go on after the rows that it has given.
    order = ", ".join(quote_name(column.name, dialect) for column in table.key_columns)
    names = ", ".join(quote_name(column.name, dialect) for column in table.columns)
    ordered = f" ORDER BY {order}" if order else ""
    return f"SELECT {names} FROM {quote_name(table.name, dialect)}{ordered}"


def _batches(client: SpannerClient, query: Query, table: TableSchema, skip: int) -> Iterator[pa.RecordBatch]:
    rows: list[list[bytes]] = []
    for number, row in enumerate(client.rows(query, TABLE_DEADLINE_S)):
        if number < skip:
            continue
        rows.append(row)
        if len(rows) == ROWS_PER_BATCH:
            yield rows_to_batch(table, rows)
            rows = []
    if rows:
        yield rows_to_batch(table, rows)


def rows_to_batch(table: TableSchema, rows: list[list[bytes]]) -> pa.RecordBatch:
    """Return rows of a table, which has the columns in this order, as one batch."""
    columns = zip(table.columns, zip(*rows, strict=True), strict=True)
    arrays = [to_arrow(column.type, values) for column, values in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(table))
