"""Repeated snapshots: which rows are of one, where it ends, and what it does to tables that it replaces.

A snapshot that replaces a table counts as one transaction that begins by truncating the table, so that no
cut shows the half of it. What is told of it does not depend on what was told before: messages that are held
back are decoded again.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from cdc_platform.model.events import SourceEvent
from cdc_platform.model.records import ModType
from cdc_platform.sources.debezium.envelope import Source, TransactionEnd
from cdc_platform.sources.debezium.positions import INCREMENTAL, is_snapshot, snapshot_key

LAST: Final = "last"
_BOUNDARIES: Final = frozenset({"first", "first_in_data_collection", "last_in_data_collection", LAST})
"""Each table that has rows has at least one row that is called so, and its first one always is."""


@dataclass(slots=True)
class SeenSnapshots:
    """What a server's events have told of its snapshots: positions in its log.

    ``first`` is the one that the stream began with, 0 where it began without; ``open`` is one that replaces
    tables and has not ended.
    """

    first: int
    newest: int = 0
    open: int | None = None

    def see(self, source: Source, *, is_held: bool) -> tuple[int, ...]:
        """Take an event, and return the snapshots that it shows to have ended, by their positions.

        ``is_held`` tells that it is of a table that its snapshot replaces; others are nothing to end.
        """
        ended = []
        lsn = position_of(source)
        if self.open is not None and (lsn is None or lsn > self.open):
            ended.append(self.open)
            self.open = None
        if lsn is not None:
            self.newest = max(self.newest, lsn)
            is_over = source.snapshot == LAST or lsn < self.newest
            if is_over and (is_held or self.open == lsn):
                ended.append(lsn)
                self.open = None if self.open == lsn else self.open
            elif is_held:
                self.open = lsn
        return tuple(ended)


def position_of(source: Source) -> int | None:
    """Return the position of the snapshot that an event is of; None for a change."""
    return source.lsn if is_snapshot(source) and source.snapshot != INCREMENTAL else None


@dataclass(slots=True)
class SnapshotWatch:
    """Follows the snapshots of all servers; ``seen`` is what it goes on with in the next tick."""

    seen: dict[str, SeenSnapshots] = field(default_factory=dict)

    def take(
        self, source: Source, changes: Iterable[SourceEvent], position: int, *, replaces: bool
    ) -> list[SourceEvent | TransactionEnd]:
        """Return an event's changes, with what a repeated snapshot that replaces the table adds to them.

        Args:
            source: of the event.
            changes: the event's.
            position: the message's.
            replaces: whether a repeated snapshot is to replace the table.
        """
        lsn = position_of(source)
        known = self.seen.get(source.server)
        if known is None:
            known = self.seen[source.server] = SeenSnapshots(lsn or 0)
        is_held = replaces and lsn not in (None, known.first)
        ended = known.see(source, is_held=is_held)
        told: list[SourceEvent | TransactionEnd] = [*changes]
        if is_held and lsn is not None:
            held = [replace(change, transaction_id=_name(lsn)) for change in changes]
            emptied = held[:1] if source.snapshot in _BOUNDARIES else []
            told = [*(_truncate(source, change, lsn) for change in emptied), *held]
        return [*told, *(TransactionEnd(_name(one), 0, {}, source.micros, position) for one in ended)]


def _name(lsn: int) -> str:
    return f"snapshot {lsn}"


def _truncate(source: Source, change: SourceEvent, lsn: int) -> SourceEvent:
    """Return what empties the table before all rows of the snapshot; it may be told several times."""
    identity = [source.server, "snapshot", lsn, source.schema, source.table]
    return replace(
        change,
        mod_type=ModType.TRUNCATE,
        order_key=snapshot_key(lsn),
        event_id=json.dumps(identity, ensure_ascii=False),
        column_types="[]",
        keys="{}",
        new_values=None,
        old_values=None,
        metadata=json.dumps({"op": "t", "snapshot": LAST, "lsn": lsn}),
    )
