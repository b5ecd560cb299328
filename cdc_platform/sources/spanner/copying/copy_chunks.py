"""Chunks of a table's copy, as text that the lake stores and any worker can read."""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.sources.spanner.client.query import Parameter, Query, to_request
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings


@dataclass(frozen=True)
class PartitionToken:
    """A part of a query's result as divided by Spanner; it is valid only in its session and transaction."""

    session: str
    transaction: bytes
    token: bytes


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table at one time: those of a query, or of one partition token of it."""

    query: Query
    partition: PartitionToken | None = None

    def to_text(self) -> str:
        """Return the chunk as JSON text, without its time."""
        parameters = {name: [value.type_name, value.text] for name, value in self.query.parameters.items()}
        fields: dict[str, Any] = {"sql": self.query.sql, "parameters": parameters}
        if self.partition is not None:
            fields["session"] = self.partition.session
            fields["transaction"] = b64encode(self.partition.transaction).decode()
            fields["token"] = b64encode(self.partition.token).decode()
        return json.dumps(fields)

    @classmethod
    def from_text(cls, text: str, at_micros: int) -> "Chunk":
        """Parse a chunk from a text of `to_text`, with its time.

        Raises:
            ValueError, RecursionError: the text has another form.
        """
        members = parse_stored(text, _StoredChunk)
        parameters = {name: Parameter(*value) for name, value in members.parameters.items()}
        return cls(Query(members.sql, parameters, at_micros), members.partition)


@dataclass(frozen=True)
class _StoredChunk:
    """The stored form of a chunk; a plain query has no token, session and transaction."""

    sql: str
    parameters: dict[str, tuple[str, str | None]]
    session: str | None = None
    transaction: str | None = None
    token: str | None = None

    @property
    def partition(self) -> PartitionToken | None:
        if self.session is None or self.transaction is None or self.token is None:
            if (self.session, self.transaction, self.token) != (None, None, None):
                raise ValueError("a part of the partition token is missing")
            return None
        transaction, token = (b64decode(part, validate=True) for part in (self.transaction, self.token))
        return PartitionToken(self.session, transaction, token)


def chunk_request(chunk: Chunk, settings: SpannerSettings, session: str, resume_token: bytes) -> Any:
    """Return the request that reads a chunk from its beginning or from a resume token."""
    from google.cloud.spanner_v1.types import TransactionSelector

    partition = chunk.partition
    request = to_request(chunk.query, settings, partition.session if partition is not None else session)
    request.resume_token = resume_token
    if partition is not None:
        request.transaction = TransactionSelector(id=partition.transaction)
        request.partition_token = partition.token
        # Spanner accepts it only with partition tokens.
        request.data_boost_enabled = settings.data_boost
    return request
