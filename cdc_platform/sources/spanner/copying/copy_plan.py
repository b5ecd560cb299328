"""Division of a table at one time into chunks that workers copy independently."""

import threading
from collections.abc import Iterator, Sequence
from typing import Final

from cdc_platform.model.base.names import quote_spanner
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import STRING, Parameter, Query, quote_name
from cdc_platform.sources.spanner.copying.copy_bounds import Bound, KeyRange, OrderedKeyColumn, splittable
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, PartitionToken
from cdc_platform.sources.spanner.spanner_settings import Dialect

ENOUGH_TOKENS: Final = 8
"""Spanner divides large tables; a table with fewer partition tokens is divided by its key instead."""

_KEY_ORDER_SQL: Final = (
    "SELECT column_name, column_ordering FROM information_schema.index_columns "
    "WHERE index_type = 'PRIMARY_KEY' AND table_schema = @schema AND table_name = @table"
)


class CopyPlanner:
    """Divides tables at one time into chunks; all partition tokens belong to one transaction.

    Safe to use from several threads.
    """

    def __init__(self, client: SpannerClient, at_micros: int) -> None:
        self._client, self._at_micros = client, at_micros
        self._lock = threading.Lock()
        self._transaction: tuple[str, bytes] | None = None

    def chunks(self, table: TableSchema, chunk_rows: int) -> tuple[str, ...]:
        """Return the texts of chunks that together are the table at that time; none for an empty table.

        Spanner divides a large table into partition tokens. Smaller tables are divided by key into chunks of
        about `chunk_rows` rows, for which Spanner scans the keys once.

        Raises:
            RetentionExpired: the source no longer keeps that version.
            SourceError: the source could not be read.
        """
        return tuple(chunk.to_text() for chunk in self._chunks(table, chunk_rows))

    def _chunks(self, table: TableSchema, chunk_rows: int) -> list[Chunk]:
        client, at_micros = self._client, self._at_micros
        dialect = client.dialect
        any_row = Query(f"SELECT 1 FROM {quote_name(table.name, dialect)} LIMIT 1", read_micros=at_micros)
        if not client.fetch(any_row):
            return []
        tokens = self._partition_tokens(table)
        # Keys are compared in GoogleSQL's way; PostgreSQL databases are divided only by Spanner.
        is_cut = client.settings.data_boost or len(tokens) >= ENOUGH_TOKENS
        if is_cut or dialect is Dialect.POSTGRESQL:
            return [Chunk(_rows_query(table, at_micros, dialect), token) for token in tokens]
        columns = splittable(_key_columns(client, table))
        bounds = list(_bounds(client, table, columns, at_micros, chunk_rows)) if columns else []
        ranges = zip([None, *bounds], [*bounds, None], strict=True)
        return [
            Chunk(_range_query(table, columns, KeyRange(after, until), at_micros)) for after, until in ranges
        ]

    def _partition_tokens(self, table: TableSchema) -> list[PartitionToken]:
        with self._lock:
            if self._transaction is None:
                self._transaction = self._client.begin_transaction(self._at_micros)
            session, transaction = self._transaction
        sql = _rows_query(table, self._at_micros, self._client.dialect).sql
        tokens = self._client.partition_query(sql, session, transaction)
        return [PartitionToken(session, transaction, token) for token in tokens]


def _rows_query(table: TableSchema, at_micros: int, dialect: Dialect) -> Query:
    names = ", ".join(quote_name(column.name, dialect) for column in table.columns)
    return Query(f"SELECT {names} FROM {quote_name(table.name, dialect)}", read_micros=at_micros)


def _range_query(
    table: TableSchema, columns: Sequence[OrderedKeyColumn], part: KeyRange, at_micros: int
) -> Query:
    condition = part.condition(columns) if columns else ""
    sql = _rows_query(table, at_micros, Dialect.GOOGLESQL).sql + (f" WHERE {condition}" if condition else "")
    return Query(sql, part.parameters(columns), at_micros)


def _key_columns(client: SpannerClient, table: TableSchema) -> list[OrderedKeyColumn]:
    schema, _, name = table.name.rpartition(".")
    parameters = {"schema": Parameter(STRING, schema), "table": Parameter(STRING, name)}
    order = client.fetch_texts(Query(_KEY_ORDER_SQL, parameters))
    descending = {column for column, direction in order if direction == "DESC"}
    return [OrderedKeyColumn(column, column.name in descending) for column in table.key_columns]


def _bounds(
    client: SpannerClient,
    table: TableSchema,
    columns: Sequence[OrderedKeyColumn],
    at_micros: int,
    chunk_rows: int,
) -> Iterator[Bound]:
    """Yield every `chunk_rows`-th key, in the order of the key."""
    names = ", ".join(key.sql for key in columns)
    order = ", ".join(key.order_sql for key in columns)
    bound: Bound | None = None
    while True:
        rest = KeyRange(after_exclusive=bound)
        condition = rest.condition(columns)
        sql = (
            f"SELECT {names} FROM {quote_spanner(table.name)} {f'WHERE {condition} ' if condition else ''}"
            f"ORDER BY {order} LIMIT 1 OFFSET {chunk_rows - 1}"
        )
        rows = client.fetch_texts(Query(sql, rest.parameters(columns), at_micros))
        if not rows:
            return
        bound = rows[0]
        yield bound
