"""Chunks of a table's copy, as text that the lake stores and any worker can read."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.query import request_options, single_use
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

Key = tuple[str | float | bool | None, ...]
"""Values of the primary key as they are on the wire, so that every type of key can be a bound."""


@dataclass(frozen=True)
class PartitionToken:
    """A part of a table as divided by Spanner; it is valid only in its session and transaction."""

    session: str
    transaction: bytes
    token: bytes


@dataclass(frozen=True)
class Chunk:
    """Rows of a table at one time: those in a range of its key, or those of one partition token.

    The range is ``(after_exclusive, until_inclusive]`` in the order of the primary key, in which a descending
    column begins with its largest value; None means no bound.
    """

    at_micros: int
    after_exclusive: Key | None = None
    until_inclusive: Key | None = None
    partition: PartitionToken | None = None

    def to_text(self) -> str:
        """Return the chunk as JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str, at_micros: int) -> "Chunk":
        """Parse a chunk from a text of `to_text`, with its time.

        Raises:
            ValueError, RecursionError: the text has another form.
        """
        return replace(parse_stored(text, cls), at_micros=at_micros)


def chunk_request(
    table: TableSchema, chunk: Chunk, settings: SpannerSettings, session: str, resume_token: bytes
) -> Any:
    """Return the request that reads a chunk of a table from its beginning or from a resume token."""
    from google.cloud.spanner_v1.types import ReadRequest, TransactionSelector

    request = ReadRequest(
        session=session,
        table=table.name,
        columns=[column.name for column in table.columns],
        transaction=single_use(chunk.at_micros),
        request_options=request_options(settings),
        resume_token=resume_token,
    )
    _set_keys(ReadRequest.pb(request).key_set, chunk)
    if chunk.partition is not None:
        request.session = chunk.partition.session
        request.transaction = TransactionSelector(id=chunk.partition.transaction)
        request.partition_token = chunk.partition.token
        # Spanner accepts it only with partition tokens.
        request.data_boost_enabled = settings.data_boost
    return request


def _set_keys(key_set: Any, chunk: Chunk) -> None:
    if chunk.after_exclusive is None and chunk.until_inclusive is None:
        key_set.all_ = True
        return
    bounds = key_set.ranges.add()
    # A bound of no columns is no bound.
    start = bounds.start_closed if chunk.after_exclusive is None else bounds.start_open
    for bound, key in ((start, chunk.after_exclusive), (bounds.end_closed, chunk.until_inclusive)):
        bound.SetInParent()
        bound.extend(key or ())
