"""Key changes where the headers that name the other key were not kept: both halves have one position."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform.sources.debezium.envelope import DataEvent, Op
from cdc_platform.sources.debezium.positions import is_snapshot

_REMEMBERED: Final = 1000
"""Between the halves of a key change come only the tombstone, and messages of other partitions."""

_PREFIX: Final = "__debezium."

Identity = tuple[str, str, int, int]


@dataclass(slots=True)
class Pairer:
    """Remembers rows that were deleted of late; a row inserted by the same record of the log is such a row.

    An UPDATE that changes a key is one record of the database's log, and nothing else writes a delete and
    an insert of one table at one position.
    """

    _deleted: dict[Identity, Mapping[str, Any]] = field(default_factory=dict)

    def remember(self, event: DataEvent) -> None:
        """Take note of a delete."""
        identity = _identity(event)
        if event.op is not Op.DELETE or identity is None or event.key is None or _has_headers(event):
            return
        self._deleted.pop(identity, None)
        self._deleted[identity] = event.key
        if len(self._deleted) > _REMEMBERED:
            del self._deleted[next(iter(self._deleted))]

    def old_key(self, event: DataEvent) -> Mapping[str, Any] | None:
        """Return the key that an inserted row had before; None where it is new."""
        if event.op is not Op.CREATE:
            return None
        if event.old_key is not None:
            return event.old_key
        identity = _identity(event)
        found = None if identity is None else self._deleted.get(identity)
        return None if found == event.key else found

    def to_fields(self) -> list[Any]:
        """Return what is remembered, as JSON values."""
        return [[*identity, dict(key)] for identity, key in self._deleted.items()]

    @classmethod
    def from_fields(cls, fields: Iterable[Any]) -> "Pairer":
        """Return the pairer that `to_fields` told of."""
        return cls({(server, table, tx_id, lsn): key for server, table, tx_id, lsn, key in fields})


def _has_headers(event: DataEvent) -> bool:
    """Whether the connector's headers were kept, among which a key change would have one."""
    return any(name.startswith(_PREFIX) for name in event.message.headers or ())


def _identity(event: DataEvent) -> Identity | None:
    source = event.source
    if source.tx_id is None or source.lsn is None or is_snapshot(source):
        return None
    return source.server, source.name, source.tx_id, source.lsn


def key_text(key: Mapping[str, Any]) -> str:
    """Return a key as a text that equal keys share."""
    return json.dumps(key, sort_keys=True, default=str)
