"""Division of a table at one time into chunks, ranges of its key, that workers copy independently."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.base.names import quote_spanner
from cdc_platform.model.schema.table_schema import Column, TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import STRING, Parameter, Query, quote_name
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, PartitionToken
from cdc_platform.sources.spanner.spanner_settings import Dialect

TEXT_TYPES: Final = frozenset({"INT64", "STRING", "BYTES", "DATE", "TIMESTAMP", "NUMERIC", "UUID"})
"""Types whose values are texts on the wire, so that values can be bound exactly as they were read."""

Bound = Sequence[str | None]
"""Values of the first key columns, as texts on the wire."""


@dataclass(frozen=True)
class OrderedKeyColumn:
    """A column of the primary key; NULL sorts first, or last in descending order."""

    column: Column
    is_descending: bool = False

    @property
    def sql(self) -> str:
        """The quoted name."""
        return quote_spanner(self.column.name)

    @property
    def order_sql(self) -> str:
        """The column with its direction, as in ORDER BY."""
        return f"{self.sql} DESC" if self.is_descending else self.sql


@dataclass(frozen=True)
class KeyRange:
    """Rows whose first key columns are in `(after_exclusive, until_inclusive]`; None means no bound."""

    after_exclusive: Bound | None = None
    until_inclusive: Bound | None = None

    def condition(self, columns: Sequence[OrderedKeyColumn]) -> str:
        """Return the condition for WHERE; empty for all rows."""
        parts: list[str] = []
        if self.after_exclusive is not None:
            parts.append(_after(columns, self.after_exclusive, "a", 0))
        if self.until_inclusive is not None:
            parts.append(f"NOT ({_after(columns, self.until_inclusive, 'u', 0)})")
        return " AND ".join(f"({part})" for part in [*self._seek(columns), *parts])

    def parameters(self, columns: Sequence[OrderedKeyColumn]) -> Mapping[str, Parameter]:
        """Return the parameters of the condition."""
        return {
            f"{name}{place}": Parameter(key.column.type.code, text)
            for name, bound in (("a", self.after_exclusive), ("u", self.until_inclusive))
            for place, (key, text) in enumerate(zip(columns, bound or (), strict=False))
            if text is not None
        }

    def _seek(self, columns: Sequence[OrderedKeyColumn]) -> list[str]:
        """Return a plain range of the first column, which Spanner can seek before the exact condition."""
        key = columns[0]
        after = "@a0" if self.after_exclusive and self.after_exclusive[0] is not None else None
        until = "@u0" if self.until_inclusive and self.until_inclusive[0] is not None else None
        low, high = (until, after) if key.is_descending else (after, until)
        parts = [f"{key.sql} >= {low}"] if low else []
        if high:
            # NULL sorts at the low end, which a lower bound excludes.
            parts.append(f"{key.sql} <= {high}" + ("" if low else f" OR {key.sql} IS NULL"))
        return parts


def splittable(columns: Sequence[OrderedKeyColumn]) -> tuple[OrderedKeyColumn, ...]:
    """Return the leading key columns whose values can be bound exactly as they were read."""
    leading: list[OrderedKeyColumn] = []
    for key in columns:
        if key.column.type.code not in TEXT_TYPES:
            break
        leading.append(key)
    return tuple(leading)


def _after(columns: Sequence[OrderedKeyColumn], bound: Bound, name: str, place: int) -> str:
    """Return the condition that a row follows a bound in the order of the key; it is never NULL."""
    key, text = columns[place], bound[place]
    strictly = _strictly_after(key, text, f"@{name}{place}")
    if place + 1 == len(bound):
        return strictly
    equal = f"{key.sql} IS NULL" if text is None else f"COALESCE({key.sql} = @{name}{place}, FALSE)"
    return f"{strictly} OR ({equal} AND ({_after(columns, bound, name, place + 1)}))"


def _strictly_after(key: OrderedKeyColumn, text: str | None, parameter: str) -> str:
    if text is None:
        return "FALSE" if key.is_descending else f"{key.sql} IS NOT NULL"
    if key.is_descending:
        return f"COALESCE({key.sql} < {parameter}, TRUE)"
    return f"COALESCE({key.sql} > {parameter}, FALSE)"


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
