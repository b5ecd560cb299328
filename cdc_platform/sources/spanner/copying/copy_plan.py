"""Division of a table at one time into chunks that workers copy independently."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.wire import plain_value
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, Key, PartitionToken
from cdc_platform.sources.spanner.copying.copy_reader import read_values

ENOUGH_TOKENS: Final = 8
"""Spanner divides large tables; a table with fewer partition tokens is divided by its key instead."""


class CopyPlanner:
    """Divides tables at one time into chunks; all partition tokens belong to one transaction.

    Safe to use from several threads.
    """

    def __init__(self, client: SpannerClient, at_micros: int) -> None:
        self._client, self._at_micros = client, at_micros
        self._lock = threading.Lock()
        self._transaction: tuple[str, bytes] | None = None

    def chunks(self, table: TableSchema, chunk_rows: int) -> tuple[str, ...]:
        """Return the texts of chunks that together are the table at that time.

        Spanner divides a large table into partition tokens. Smaller tables are divided by key into chunks of
        `chunk_rows` rows, for which all keys are read once; an empty one has no chunk.

        Raises:
            RetentionExpired: the source no longer keeps that version.
            SourceError: the source could not be read.
        """
        tokens = self._partition_tokens(table)
        if self._client.settings.data_boost or len(tokens) >= ENOUGH_TOKENS:
            chunks = [Chunk(self._at_micros, partition=token) for token in tokens]
        else:
            bounds = pairwise([None, *self._bounds(table, chunk_rows)])
            chunks = [Chunk(self._at_micros, after, until) for after, until in bounds]
        return tuple(chunk.to_text() for chunk in chunks)

    def _partition_tokens(self, table: TableSchema) -> list[PartitionToken]:
        with self._lock:
            if self._transaction is None:
                self._transaction = self._client.begin_transaction(self._at_micros)
            session, transaction = self._transaction
        columns = [column.name for column in table.columns]
        tokens = self._client.partition_read(table.name, columns, session, transaction)
        return [PartitionToken(session, transaction, token) for token in tokens]

    def _bounds(self, table: TableSchema, chunk_rows: int) -> Iterator[Key]:
        """Yield every `chunk_rows`-th key and the last one, in the order of the key."""
        keys = replace(table, columns=table.key_columns)
        width, rest, last = len(keys.columns), 0, None
        for values in read_values(self._client, keys, Chunk(self._at_micros)):
            count = len(values) // width
            for row in range(chunk_rows - rest - 1, count, chunk_rows):
                yield _key(values[row * width : (row + 1) * width])
            rest, last = (rest + count) % chunk_rows, values[-width:]
        if rest and last is not None:
            yield _key(last)


def _key(values: Sequence[bytes]) -> Key:
    return tuple(plain_value(value) for value in values)
