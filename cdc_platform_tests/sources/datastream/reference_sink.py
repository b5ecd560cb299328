"""A sink that is too simple to be wrong: of each row it keeps the newest event, deletes included."""

import json
from collections.abc import Iterable
from typing import Any

from cdc_platform.model.stream.events import ADDRESS, FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType

Row = dict[str, Any]


class ReferenceSink:
    """Tables as a reader of them must end up; events may come in any order, any number of times."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], SourceEvent] = {}
        self.faults: dict[str | None, FaultyEvent] = {}

    def take(self, events: Iterable[SourceEvent | FaultyEvent]) -> None:
        """Take one batch."""
        for event in events:
            if isinstance(event, FaultyEvent):
                self.faults[event.event_id] = event
                continue
            key = (event.table, event.keys)
            stored = self._newest.get(key)
            if stored is None or _is_newer(event, stored):
                self._newest[key] = event

    def rows(self, table: str) -> dict[str, Row]:
        """Return the live rows of a table by the JSON of their keys."""
        return {
            keys: json.loads(event.new_values or "{}")
            for (name, keys), event in sorted(self._newest.items())
            if name == table and event.mod_type is not ModType.DELETE
        }

    @property
    def tables(self) -> set[str]:
        """The tables of the events."""
        return {table for table, _ in self._newest}


def _is_newer(event: SourceEvent, stored: SourceEvent) -> bool:
    """Return whether an event counts more than the one that is stored for its row.

    Within a transaction that moves keys, a delete counts for the row that it names only.
    """
    if _passes_by(event, stored):
        return False
    return event.ordering_key > stored.ordering_key or _passes_by(stored, event)


def _passes_by(removal: SourceEvent, written: SourceEvent) -> bool:
    """Return whether a delete is of another row than the one its transaction wrote under the key."""
    if removal.mod_type is not ModType.DELETE or written.mod_type is ModType.DELETE:
        return False
    ids = (_row_id(removal), _row_id(written))
    same_transaction = removal.transaction_id == written.transaction_id != ""
    return same_transaction and None not in ids and ids[0] != ids[1]


def _row_id(event: SourceEvent) -> str | None:
    address: str | None = json.loads(event.metadata or "{}").get(ADDRESS)
    return address
