"""Strong reads: the source's clock, and whole tables at one exact timestamp."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from cdc_platform.errors import RecordUnreadable, SourceUnreachable
from cdc_platform.model.base.timestamps import from_rfc3339
from cdc_platform.model.schema.table_schema import Column, TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query, quote_name
from cdc_platform.sources.spanner.client.wire import MISSHAPEN
from cdc_platform.sources.spanner.copying.columns import arrow_type, is_readable, shown_value, to_arrow
from cdc_platform.sources.spanner.spanner_settings import Dialect

ROWS_PER_BATCH: Final = 10_000
EXCERPT_BYTES: Final = 500
TABLE_DEADLINE_S: Final = 3600.0
"""Longest read of one table; by default Spanner keeps old versions for an hour."""

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
    attempts = client.attempts()
    query = Query(_table_sql(table, client.dialect), read_micros=at_micros)
    count = 0
    while True:
        try:
            for batch in _batches(client, query, table, count):
                count += batch.num_rows
                attempts.reset()
                yield batch
        except SourceUnreachable as error:
            attempts.wait_after(error)
        else:
            return


def table_arrow_schema(table: TableSchema) -> pa.Schema:
    """Return the Arrow schema of the table's rows."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


def _table_sql(table: TableSchema, dialect: Dialect) -> str:
    # The order lets an interrupted read resume after the rows that it has returned.
    order = ", ".join(quote_name(column.name, dialect) for column in table.key_columns)
    names = ", ".join(quote_name(column.name, dialect) for column in table.columns)
    order_by = f" ORDER BY {order}" if order else ""
    return f"SELECT {names} FROM {quote_name(table.name, dialect)}{order_by}"


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
    """Return rows of a table, with its columns in order, as one batch.

    Raises:
        RecordUnreadable: a row has a wrong number of values, or a value does not have its column's type.
    """
    width = len(table.columns)
    if any(len(row) != width for row in rows):
        actual = next(len(row) for row in rows if len(row) != width)
        raise RecordUnreadable(
            f"A row of `{table.name}` has {actual} values for {width} columns: Spanner's answer has another "
            "shape than was asked for. Nothing of this part of the table was taken; report it."
        )
    arrays = [_column(table, place, rows) for place in range(width)]
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(table))


def _column(table: TableSchema, place: int, rows: list[list[bytes]]) -> pa.Array:
    column = table.columns[place]
    try:
        return to_arrow(column.type, [row[place] for row in rows])
    except MISSHAPEN as error:
        raise _unreadable(table, column, rows, error) from error


def _unreadable(table: TableSchema, column: Column, rows: list[list[bytes]], error: Exception) -> Exception:
    """Return the error of the first row whose value cannot be read, with the row's key."""
    place = table.columns.index(column)
    row = next((row for row in rows if not is_readable(column.type, row[place])), None)
    if row is None:
        # Each single value is valid, but together they exceed the size of an Arrow array.
        return RecordUnreadable(f"Values of `{table.name}`.`{column.name}` cannot be read: {error}")
    key = {
        column.name: shown_value(row[at]) for at, column in enumerate(table.columns) if column.is_primary_key
    }
    return RecordUnreadable(
        f"Table `{table.name}`, key {key}: the value of the column `{column.name}` is not of its type "
        f"{column.type.text} ({type(error).__name__}: {error}). Nothing of this part of the table was taken; "
        f"report it with this value: {row[place][:EXCERPT_BYTES]!r}"
    )
