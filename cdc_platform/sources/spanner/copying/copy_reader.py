"""Reader of one chunk of a copy, which resumes after interruptions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from cdc_platform.errors import (
    CopyExpired,
    KeyUnfit,
    RetentionExpired,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.sources.spanner.client.chunks import RowAssembler
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.copying.columns import find_unfit_moment
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, chunk_request
from cdc_platform.sources.spanner.copying.snapshot import ROWS_PER_BATCH, rows_to_batch

BYTES_PER_BATCH: Final = 16 * 1024 * 1024
BUFFERED_BATCHES: Final = 4
"""Number of batches of rows that wait for a resume token that covers them; emulators send none."""
CALL_S: Final = 600.0
"""Longest single call; a chunk that takes longer continues in another call."""

_TOKEN_SIGNS: Final = ("session", "transaction", "partition_token", "partition token")
"""Parts of error messages for a partition token whose session, transaction or token has expired."""


@dataclass
class _Rows:
    """Rows that were read but not yet returned; the first ``safe`` of them need not be read again."""

    fields: Any = None
    rows: list[list[bytes]] = field(default_factory=list)
    safe: int = 0
    buffered_bytes: int = 0
    token: bytes = b""
    is_ahead: bool = False
    """Whether rows were returned that the token does not cover, so that another call would repeat them."""

    def add(self, row: list[bytes], token: bytes) -> None:
        """Add a row, and the token of the rows before it."""
        self.cover(token)
        self.rows.append(row)
        self.buffered_bytes += sum(map(len, row))

    def cover(self, token: bytes) -> None:
        """Store the token that resumes after all current rows."""
        if token != self.token:
            self.token, self.safe, self.is_ahead = token, len(self.rows), False

    def is_full(self, batches: int) -> bool:
        """Return whether the rows fill this many batches."""
        return len(self.rows) >= batches * ROWS_PER_BATCH or self.buffered_bytes >= batches * BYTES_PER_BATCH

    def take(self) -> list[list[bytes]]:
        """Return rows: the safe ones, or all if there are too many."""
        if self.is_full(1) and self.safe:
            return self._pop_rows(self.safe)
        if self.is_full(BUFFERED_BATCHES):
            self.is_ahead = True
            return self._pop_rows(len(self.rows))
        return []

    def take_all(self) -> list[list[bytes]]:
        """Return the remaining rows, after the read has ended."""
        return self._pop_rows(len(self.rows))

    def forget_unsafe(self) -> None:
        """Drop the rows that the next call repeats."""
        del self.rows[self.safe :]
        self.buffered_bytes = sum(sum(map(len, row)) for row in self.rows)

    def _pop_rows(self, count: int) -> list[list[bytes]]:
        rows, self.rows = self.rows[:count], self.rows[count:]
        self.safe = 0
        self.buffered_bytes = sum(sum(map(len, row)) for row in self.rows)
        return rows


def read_chunk(client: SpannerClient, table: TableSchema, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk, each once, in no order.

    Raises:
        CopyExpired: the source no longer keeps the version that the copy reads, or its partition tokens.
        KeyUnfit: a key is a timestamp that would be truncated.
        SourceError: the read failed otherwise; after `SourceUnreachable` the chunk may be read again.
    """
    attempts, buffer = client.attempts(), _Rows()
    while True:
        before = buffer.token
        try:
            for rows in _read_on(client, chunk, buffer):
                _check_keys(table, rows)
                yield rows_to_batch(table, rows)
        except SourceError as error:
            failure = _translate(error, chunk)
            if not failure.retryable or buffer.is_ahead:
                raise failure from error
            if buffer.token != before:
                attempts.reset()
            buffer.forget_unsafe()
            attempts.wait_after(failure)
        else:
            return


def _check_keys(table: TableSchema, rows: list[list[bytes]]) -> None:
    for place, column in enumerate(table.columns):
        if not column.is_primary_key or spark_type(column.type) != "timestamp":
            continue
        unfit = find_unfit_moment(row[place] for row in rows)
        if unfit is not None:
            name = f"{table.name}.{column.name}"
            raise KeyUnfit(
                f"The initial copy of `{table.name}` holds a key whose last digits would be cut off, so that "
                f"two rows could become one. Name `{name}` in `nanosecond_columns` of a pipeline with "
                f"another `name`, or exclude the table with the setting `tables`. "
                f"Value of `{column.name}`: {unfit}"
            )


def _read_on(client: SpannerClient, chunk: Chunk, buffer: _Rows) -> Iterator[list[list[bytes]]]:
    resume_token = buffer.token
    assembler = RowAssembler()
    # A resumed answer may omit its columns.
    assembler.fields, assembler.resume_token = buffer.fields, resume_token
    deadline_s = max(CALL_S, client.settings.deadline_s)
    rows = client.stream_request(
        lambda session: chunk_request(chunk, client.settings, session, resume_token), assembler, deadline_s
    )
    try:
        for row in rows:
            buffer.add(row, assembler.resume_token)
            if full_rows := buffer.take():
                yield full_rows
    finally:
        buffer.cover(assembler.resume_token)
        buffer.fields = assembler.fields
    if full_rows := buffer.take_all():
        yield full_rows


def _translate(error: SourceError, chunk: Chunk) -> SourceError:
    """Return an expiry error if the copy's version, session or tokens are gone, else the same error."""
    is_token_gone = chunk.partition is not None and (
        isinstance(error, SourceNotFound)
        or (isinstance(error, SourceUnreachable) and "Session not found" in str(error))
        or (type(error) is SourceError and any(sign in str(error).lower() for sign in _TOKEN_SIGNS))
    )
    if isinstance(error, RetentionExpired) or is_token_gone:
        return CopyExpired(
            "The source no longer keeps the version that the copy reads. Spanner keeps versions for the "
            "database's `version_retention_period`, one hour unless it is set: "
            "ALTER DATABASE `...` SET OPTIONS (version_retention_period = '1d') lets a copy take longer. "
            f"{error}"
        )
    return error
