"""Contents of messages: changes, boundaries of transactions, and the connector's own messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.schema_blocks import Fields


class Op(StrEnum):
    """Operation on a row, or on its table."""

    CREATE = "c"
    """The row was inserted, or got this key in a key change."""
    UPDATE = "u"
    """The row was updated, with the same key."""
    DELETE = "d"
    """The row was deleted, or gave up this key in a key change."""
    READ = "r"
    """A snapshot read the row."""
    TRUNCATE = "t"
    """All rows of the table are gone."""


# Python 3.11 takes ten times as long to find a member in its enum.
CREATE, UPDATE, DELETE, READ, TRUNCATE = Op


MOD_TYPES: Final[Mapping[Op, ModType]] = {
    CREATE: ModType.INSERT,
    UPDATE: ModType.UPDATE,
    DELETE: ModType.DELETE,
    READ: ModType.SNAPSHOT,
    TRUNCATE: ModType.TRUNCATE,
}


class MessageUnusable(ValueError):
    """A message has no usable content; the text states the reason and what to do."""


class SourceInfo(msgspec.Struct, frozen=True):
    """Position of an event in the database's log; None where the event states nothing.

    ``name`` is the table's name in the database, `SCHEMA.TABLE`.
    ``sequence`` is the commit of the previous transaction and the position of the change.
    ``knows_commits`` states whether the connector sends `commit_lsn`.
    """

    server: str
    database: str
    schema: str
    table: str
    version: str
    snapshot: str
    tx_id: int | None
    lsn: int | None
    sequence: tuple[int | None, int | None] | None
    commit_lsn: int | None
    knows_commits: bool
    micros: int | None
    name: str


class DataEvent(msgspec.Struct, frozen=True):
    """A change of a row, or of a whole table.

    ``transaction_id`` is empty without a transaction; ``fields`` is the schema block of the row, None if the
    event has none.
    """

    message: Message
    op: Op
    source: SourceInfo
    key: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    fields: Fields | None
    key_fields: Fields | None
    transaction_id: str
    total_order: int | None
    old_key: Mapping[str, Any] | None
    new_key: Mapping[str, Any] | None
    is_flat: bool = False


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message that a session wrote into the log with `pg_logical_emit_message`."""

    message: Message
    source: SourceInfo
    prefix: str
    content: str
    transaction_id: str
    total_order: int | None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A message without a value, which makes Kafka remove a key; the delete came before it."""

    topic: str
    key: Any
    position: int


class TransactionBegin(msgspec.Struct, frozen=True, gc=False):
    """A transaction begins; its changes have its id."""

    transaction_id: str
    micros: int | None


class TransactionEnd(msgspec.Struct, frozen=True, gc=False):
    """A transaction ends; it counts changes, not messages about them.

    ``lsn`` is the position of its commit, None if the connector does not state it.
    """

    transaction_id: str
    event_count: int | None
    lsn: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The connector is alive."""

    server: str
    micros: int | None
    position: int


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal to the connector, through its signal topic or its signal table.

    A row of the signal table is an event of a transaction: ``transaction_id``, ``ordering_key`` and
    ``event_id`` are those of this event. They are empty for other signals.
    """

    position: int
    transaction_id: str = ""
    ordering_key: str = ""
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Notification:
    """Message of the connector about itself, in its notification topic; ``emptied`` is a table without rows.

    ``identity`` is unique; ``micros`` is the time at which the connector sent it.
    """

    server: str
    identity: str
    emptied: str | None
    micros: int | None
    position: int


Boundary = TransactionBegin | TransactionEnd
EnvelopeContent = DataEvent | LogicalMessage | Tombstone | Boundary | Heartbeat | Signal | Notification
OPS: Final[Mapping[str, Op]] = {op.value: op for op in Op}
