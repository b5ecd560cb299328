"""Pairing of the halves of key changes without the connector's headers: both have one position."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform.sources.debezium.wire.message_contents import CREATE, DELETE, READ, DataEvent
from cdc_platform.sources.debezium.wire.plain_lines import PlainChange
from cdc_platform.sources.debezium.wire.positions import is_snapshot

_REMEMBERED: Final = 1000
"""Maximum number of deletes that the next cycle knows; a sender puts few messages between two halves."""

_PREFIX: Final = "__debezium."

Identity = tuple[str, str, int, int]
DeletedRow = tuple[str, str, int, int, dict[str, Any]]
"""A row that was deleted: the identity of its event, and its key."""


@dataclass(slots=True)
class Pairer:
    """Keeps recently deleted rows; a row inserted by the same record of the log is such a row.

    An UPDATE that changes a key is one record of the database's log, and nothing else writes a delete and
    an insert of one table at one position. The delete precedes the insert in their transaction, but in
    another partition, so either may be read first.
    """

    _deleted: dict[Identity, Mapping[str, Any]] = field(default_factory=dict)
    _orders: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def remember(self, event: DataEvent) -> Identity | None:
        """Note an event, and return the identity of the row that it deletes, if any."""
        if event.total_order is None and event.op is not DELETE:
            return None
        identity = identity_of(event)
        if identity is None or _has_headers(event.message.headers):
            return None
        if event.total_order is not None:
            self._orders.setdefault((identity[0], identity[2]), set()).add(event.total_order)
        if event.op is DELETE and event.key is not None:
            return self._note_deleted(identity, event.key)
        return None

    def remember_plain(self, change: PlainChange) -> bool:
        """Note the order of a plain change; return whether an inserted row certainly had no other key."""
        if _has_headers(change.headers):
            return True
        transaction, source = change.envelope.transaction, change.envelope.source
        order = None if transaction is None else transaction.total_order
        if order is None or change.envelope.op == READ:
            return False
        orders = self._orders.setdefault((source.name, source.txId), set())
        orders.add(order)
        return order == 1 or order - 1 in orders

    def remember_deletion(self, change: PlainChange) -> Identity | None:
        """Note a plain delete, and return the identity of its row unless its headers show a key change."""
        if _has_headers(change.headers):
            return None
        return self._note_deleted(_identity_of_plain(change), change.key)

    def _note_deleted(self, identity: Identity, key: Mapping[str, Any]) -> Identity:
        self._deleted.pop(identity, None)
        self._deleted[identity] = key
        return identity

    def knows_deletion(self, change: PlainChange) -> bool:
        """Return whether a row was deleted at the position of a change."""
        return bool(self._deleted) and _identity_of_plain(change) in self._deleted

    def old_key(self, event: DataEvent) -> Mapping[str, Any] | None:
        """Return the former key of an inserted row; None if unknown."""
        if event.op is not CREATE:
            return None
        if event.old_key is not None:
            return event.old_key
        identity = identity_of(event)
        key = None if identity is None else self.deleted_at(identity)
        return None if key == event.key else key

    def deleted_at(self, identity: Identity) -> Mapping[str, Any] | None:
        """Return the key of the row that was deleted at a position; None if unknown."""
        return self._deleted.get(identity)

    def is_new(self, event: DataEvent) -> bool:
        """Return whether an inserted row certainly had no other key: the event before is another one."""
        if _has_headers(event.message.headers):
            return event.old_key is None
        identity, order = identity_of(event), event.total_order
        if identity is None or order is None or self.deleted_at(identity) is not None:
            return False
        return order == 1 or order - 1 in self._orders.get((identity[0], identity[2]), ())

    def to_fields(self) -> list[Any]:
        """Return the kept rows as JSON values."""
        newest = list(self._deleted.items())[-_REMEMBERED:]
        return [[*identity, dict(key)] for identity, key in newest]

    @classmethod
    def from_fields(cls, fields: Iterable[DeletedRow]) -> "Pairer":
        """Return the pairer from the result of `to_fields`."""
        return cls({(server, table, tx_id, lsn): key for server, table, tx_id, lsn, key in fields})


def _has_headers(headers: Mapping[str, Any] | None) -> bool:
    """Return whether a message has the connector's headers, which would show a key change."""
    return headers is not None and any(name.startswith(_PREFIX) for name in headers)


def identity_of(event: DataEvent) -> Identity | None:
    """Return the identity that both halves of a key change share; None if the event does not state it."""
    source = event.source
    if source.tx_id is None or source.lsn is None or is_snapshot(source):
        return None
    return source.server, source.name, source.tx_id, source.lsn


def _identity_of_plain(change: PlainChange) -> Identity:
    source = change.envelope.source
    return source.name, f"{source.schema}.{source.table}", source.txId, source.lsn


def key_text(key: Mapping[str, Any]) -> str:
    """Return a key as text, equal for equal keys."""
    return json.dumps(key, sort_keys=True, default=str)
