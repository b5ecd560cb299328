"""Chunks of a table's copy, as text that is kept in the lake and read by any worker."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.sources.spanner.client.query import Parameter, Query, to_request
from cdc_platform.sources.spanner.settings import SpannerSettings


@dataclass(frozen=True)
class PartitionToken:
    """A part of a query's result as Spanner cuts it; it counts in one session and transaction only."""

    session: str
    transaction: bytes
    token: bytes


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table at one moment: those of a query, or of one partition token of it."""

    query: Query
    partition: PartitionToken | None = None

    def to_text(self) -> str:
        """Return the chunk as JSON text, without its moment."""
        parameters = {name: [value.type_name, value.text] for name, value in self.query.parameters.items()}
        fields: dict[str, Any] = {"sql": self.query.sql, "parameters": parameters}
        if self.partition is not None:
            fields["session"] = self.partition.session
            fields["transaction"] = b64encode(self.partition.transaction).decode()
            fields["token"] = b64encode(self.partition.token).decode()
        return json.dumps(fields)

    @classmethod
    def from_text(cls, text: str, at_micros: int) -> "Chunk":
        """Return the chunk of a text that `to_text` made, at its moment."""
        fields = json.loads(text)
        parameters = {name: Parameter(*value) for name, value in fields["parameters"].items()}
        return cls(Query(fields["sql"], parameters, at_micros), _partition(fields))


def _partition(fields: Mapping[str, Any]) -> PartitionToken | None:
    if "token" not in fields:
        return None
    return PartitionToken(fields["session"], b64decode(fields["transaction"]), b64decode(fields["token"]))


def chunk_request(chunk: Chunk, settings: SpannerSettings, session: str, resume_token: bytes) -> Any:
    """Return the request that reads a chunk, from its beginning or from where a resume token goes on."""
    from google.cloud.spanner_v1.types import TransactionSelector

    partition = chunk.partition
    request = to_request(chunk.query, settings, partition.session if partition is not None else session)
    request.resume_token = resume_token
    if partition is not None:
        request.transaction = TransactionSelector(id=partition.transaction)
        request.partition_token = partition.token
        # Spanner takes it for partition tokens only.
        request.data_boost_enabled = settings.data_boost
    return request


def columns_to_text(table: TableSchema) -> str:
    """Return a table's columns as JSON text."""
    return json.dumps(asdict(table))


def columns_from_text(text: str) -> TableSchema:
    """Return the table of a text that `columns_to_text` made."""
    fields = json.loads(text)
    columns = (Column(**{**column, "type": _type(column["type"])}) for column in fields["columns"])
    return TableSchema(fields["name"], tuple(columns))


def _type(fields: Mapping[str, Any]) -> ColumnType:
    element = fields["element"]
    return ColumnType(**{**fields, "element": _type(element) if element else None})
