"""Cutting a table, as it is at one moment, into pieces that workers copy independently."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cdc_platform.model.names import quote_spanner
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.model.timestamps import to_rfc3339
from cdc_platform.sources.spanner.client import SpannerClient
from cdc_platform.sources.spanner.copy_bounds import Bound, KeyColumn, KeyRange, splittable
from cdc_platform.sources.spanner.copy_pieces import PartitionToken, Piece
from cdc_platform.sources.spanner.query import STRING, Parameter, Query

ENOUGH_TOKENS: Final = 8
"""Spanner cuts large tables by itself; one that it cuts into fewer parts is cut by its key."""

_KEY_ORDER_SQL: Final = (
    "SELECT column_name, column_ordering FROM information_schema.index_columns "
    "WHERE index_type = 'PRIMARY_KEY' AND table_schema = @schema AND table_name = @table"
)


def plan_pieces(
    client: SpannerClient, table: TableSchema, at_micros: int, piece_rows: int
) -> tuple[Piece, ...]:
    """Return pieces that together are the table at the moment; none for an empty table.

    A large table is cut by Spanner into partition tokens. Others, of which Spanner makes one or two, are
    cut by key into pieces of about `piece_rows` rows, for which Spanner goes once through the keys.

    Raises:
        RetentionExpired: The source no longer keeps that version.
        SourceError: The source could not be read.
    """
    rows = _rows_query(table, at_micros)
    if not client.fetch(Query(f"SELECT 1 FROM {quote_spanner(table.name)} LIMIT 1", read_micros=at_micros)):
        return ()
    tokens = _partition_tokens(client, rows, at_micros)
    if client.settings.data_boost or len(tokens) >= ENOUGH_TOKENS:
        return tuple(Piece(rows, token) for token in tokens)
    columns = splittable(_key_columns(client, table))
    bounds = list(_bounds(client, table, columns, at_micros, piece_rows)) if columns else []
    ranges = [KeyRange(after, until) for after, until in zip([None, *bounds], [*bounds, None], strict=True)]
    return tuple(Piece(_range_query(table, columns, part, at_micros)) for part in ranges)


def _rows_query(table: TableSchema, at_micros: int) -> Query:
    names = ", ".join(quote_spanner(column.name) for column in table.columns)
    return Query(f"SELECT {names} FROM {quote_spanner(table.name)}", read_micros=at_micros)


def _range_query(
    table: TableSchema, columns: Sequence[KeyColumn], part: KeyRange, at_micros: int
) -> Query:
    condition = part.condition(columns) if columns else ""
    sql = _rows_query(table, at_micros).sql + (f" WHERE {condition}" if condition else "")
    return Query(sql, part.parameters(columns), at_micros)


def _partition_tokens(client: SpannerClient, query: Query, at_micros: int) -> list[PartitionToken]:
    from google.cloud.spanner_v1.types import PartitionQueryRequest, TransactionSelector

    def make_request(session: str) -> Any:
        nonlocal used
        used = session
        begin = TransactionSelector({"begin": {"read_only": {"read_timestamp": to_rfc3339(at_micros)}}})
        return PartitionQueryRequest(session=session, transaction=begin, sql=query.sql)

    used = ""
    answer = client.partition_query(make_request)
    return [
        PartitionToken(used, answer.transaction.id, partition.partition_token)
        for partition in answer.partitions
    ]


def _key_columns(client: SpannerClient, table: TableSchema) -> list[KeyColumn]:
    schema, _, name = table.name.rpartition(".")
    parameters = {"schema": Parameter(STRING, schema), "table": Parameter(STRING, name)}
    order = dict(client.fetch_texts(Query(_KEY_ORDER_SQL, parameters)))
    return [KeyColumn(column, order.get(column.name) == "DESC") for column in table.key_columns]


def _bounds(
    client: SpannerClient, table: TableSchema, columns: Sequence[KeyColumn], at_micros: int, piece_rows: int
) -> Iterator[Bound]:
    """Yield the key of every so-manieth row, in the order of the key."""
    names = ", ".join(key.sql for key in columns)
    order = ", ".join(key.order_sql for key in columns)
    bound: Bound | None = None
    while True:
        rest = KeyRange(after_exclusive=bound)
        condition = rest.condition(columns)
        sql = (
            f"SELECT {names} FROM {quote_spanner(table.name)} {f'WHERE {condition} ' if condition else ''}"
            f"ORDER BY {order} LIMIT 1 OFFSET {piece_rows - 1}"
        )
        found = client.fetch_texts(Query(sql, rest.parameters(columns), at_micros))
        if not found:
            return
        bound = found[0]
        yield bound
