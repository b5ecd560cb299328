"""Reads of a table at one time, whole or one chunk per task, which resume after interruptions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from cdc_platform.errors import (
    CopyExpired,
    KeyUnfit,
    RecordUnreadable,
    RetentionExpired,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.model.base.stored_names import COPIES
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.sources.spanner.client.chunks import RowAssembler
from cdc_platform.sources.spanner.client.client import SpannerClient, client_of
from cdc_platform.sources.spanner.copying.columns import (
    find_unfit_moment,
    table_arrow_schema,
    values_to_batch,
)
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, chunk_request
from cdc_platform.sources.task_plan import TaskPlan

ROWS_PER_BATCH: Final = 10_000
BYTES_PER_BATCH: Final = 16 * 1024 * 1024
BUFFERED_BATCHES: Final = 4
"""Number of batches of rows that wait for a resume token that covers them; emulators send none."""
CALL_S: Final = 600.0
"""Longest single call; a chunk that takes longer continues in another call."""

_TOKEN_GONE: Final = re.compile(
    r"Spanner said (?:FAILED_PRECONDITION|INVALID_ARGUMENT): "
    r".*\b(?:session|transaction|partition[_ ]token)\b",
    re.DOTALL | re.IGNORECASE,
)
"""Answer to a partition token whose session, transaction or token has expired.

The rest of an error's message has names of the user, which may contain these words.
"""


@dataclass
class _Buffer:
    """Values of rows that were read but not yet returned; the first ``safe`` need not be read again."""

    width: int
    fields: Any = None
    values: list[bytes] = field(default_factory=list)
    safe: int = 0
    buffered_bytes: int = 0
    token: bytes = b""
    is_ahead: bool = False
    """Whether rows were returned that the token does not cover, so that another call would repeat them."""

    def add(self, values: list[bytes], token: bytes) -> None:
        """Add the values of rows, and the token of the rows before them."""
        self.cover(token)
        self.values.extend(values)
        self.buffered_bytes += sum(map(len, values))

    def cover(self, token: bytes) -> None:
        """Store the token that resumes after all current rows."""
        if token != self.token:
            self.token, self.safe, self.is_ahead = token, len(self.values), False

    def is_full(self, batches: int) -> bool:
        """Return whether the rows fill this many batches."""
        rows = len(self.values) // self.width
        return rows >= batches * ROWS_PER_BATCH or self.buffered_bytes >= batches * BYTES_PER_BATCH

    def take(self) -> list[bytes]:
        """Return the values of rows: the safe ones, or all if there are too many."""
        if self.is_full(1) and self.safe:
            return self._pop(self.safe)
        if self.is_full(BUFFERED_BATCHES):
            self.is_ahead = True
            return self.take_all()
        return []

    def take_all(self) -> list[bytes]:
        """Return the remaining values."""
        return self._pop(len(self.values))

    def forget_unsafe(self) -> None:
        """Drop the rows that the next call repeats."""
        del self.values[self.safe :]
        self.buffered_bytes = sum(map(len, self.values))

    def _pop(self, count: int) -> list[bytes]:
        values, self.values = self.values[:count], self.values[count:]
        self.safe = 0
        self.buffered_bytes = sum(map(len, self.values))
        return values


def plan_copy_tasks(
    settings_json: str, table: TableSchema, at_micros: int, chunks: Sequence[str]
) -> TaskPlan:
    """Return the read of the chunks of a table as of a moment.

    Raises:
        LakeDamaged: the planner did not write some chunk.
    """
    parse = partial(Chunk.from_text, at_micros=at_micros)
    parts = [read_stored(parse, text, COPIES, f"a chunk of `{table.name}`: {text}") for text in chunks]
    return TaskPlan(table_arrow_schema(table), partial(_read_part, settings_json, table), parts)


def _read_part(settings_json: str, table: TableSchema, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    # The client of a worker process is reused by later tasks.
    return read_chunk(client_of(settings_json), table, chunk)


def read_chunk(client: SpannerClient, table: TableSchema, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk of a copy, each once.

    Raises:
        CopyExpired: the source no longer keeps the version that the copy reads, or its partition tokens.
        KeyUnfit: a key is a timestamp that would be truncated.
        SourceError: the read failed otherwise; after `SourceUnreachable` the chunk may be read again.
    """
    try:
        for values in read_values(client, table, chunk):
            _check_keys(table, values)
            yield values_to_batch(table, values)
    except RetentionExpired as error:
        raise _expired(error) from error


def rows_at(client: SpannerClient, table: TableSchema, at_micros: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table at a timestamp, in the order of the primary key.

    Raises:
        RetentionExpired: the source no longer keeps that version.
        SourceError: the read failed otherwise.
    """
    for values in read_values(client, table, Chunk(at_micros)):
        yield values_to_batch(table, values)


def read_values(client: SpannerClient, table: TableSchema, chunk: Chunk) -> Iterator[list[bytes]]:
    """Yield the values of some rows of a chunk at a time, row after row, each row once.

    Rows come in the order of the primary key, unless the chunk is a partition token.

    Raises:
        RetentionExpired: the source no longer keeps the version of the chunk.
        CopyExpired: the partition token is no longer valid.
        SourceError: the read failed otherwise; after `SourceUnreachable` the chunk may be read again.
    """
    attempts, buffer = client.attempts(), _Buffer(len(table.columns))
    while True:
        before = buffer.token
        try:
            yield from _read_on(client, table, chunk, buffer)
        except SourceError as error:
            if chunk.partition is not None and _is_token_gone(error):
                raise _expired(error) from error
            if not error.retryable or buffer.is_ahead:
                raise
            if buffer.token != before:
                attempts.reset()
            buffer.forget_unsafe()
            attempts.wait_after(error)
        else:
            return


def _check_keys(table: TableSchema, values: Sequence[bytes]) -> None:
    for place, column in enumerate(table.columns):
        if not column.is_primary_key or spark_type(column.type) != "timestamp":
            continue
        unfit = find_unfit_moment(values[place :: len(table.columns)])
        if unfit is not None:
            name = f"{table.name}.{column.name}"
            raise KeyUnfit(
                f"The initial copy of `{table.name}` holds a key whose last digits would be cut off, so that "
                f"two rows could become one. Name `{name}` in `nanosecond_columns` of a pipeline with "
                f"another `name`, or exclude the table with the setting `tables`. "
                f"Value of `{column.name}`: {unfit}"
            )


def _read_on(
    client: SpannerClient, table: TableSchema, chunk: Chunk, buffer: _Buffer
) -> Iterator[list[bytes]]:
    resume_token = buffer.token
    assembler = RowAssembler()
    # A resumed answer may omit its columns.
    assembler.fields, assembler.resume_token = buffer.fields, resume_token
    deadline_s = max(CALL_S, client.settings.deadline_s)
    answer = client.stream_request(
        lambda session: chunk_request(table, chunk, client.settings, session, resume_token),
        assembler.values,
        deadline_s,
    )
    try:
        for values in answer:
            _check_width(table, len(assembler.fields))
            buffer.add(values, assembler.resume_token)
            if full := buffer.take():
                yield full
    finally:
        buffer.cover(assembler.resume_token)
        buffer.fields = assembler.fields
    if remaining := buffer.take_all():
        yield remaining


def _check_width(table: TableSchema, width: int) -> None:
    if width != len(table.columns):
        raise RecordUnreadable(
            f"A row of `{table.name}` has {width} values for {len(table.columns)} columns: Spanner's answer "
            "has another shape than was asked for. Nothing of this part of the table was taken; report it."
        )


def _is_token_gone(error: SourceError) -> bool:
    """Return whether a partition token's session, transaction or token is no longer valid."""
    return (
        isinstance(error, SourceNotFound)
        or (isinstance(error, SourceUnreachable) and "Session not found" in str(error))
        or (type(error) is SourceError and _TOKEN_GONE.search(str(error)) is not None)
    )


def _expired(error: SourceError) -> CopyExpired:
    return CopyExpired(
        "The source no longer keeps the version that the copy reads. Spanner keeps versions for the "
        "database's `version_retention_period`, one hour unless it is set: "
        "ALTER DATABASE `...` SET OPTIONS (version_retention_period = '1d') lets a copy take longer. "
        f"{error}"
    )
