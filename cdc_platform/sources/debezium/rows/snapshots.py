"""Repeated snapshots: which rows are of one, where it ends, and what it does to tables that it replaces.

Where transactions are whole, a snapshot that replaces a table counts as one that begins by truncating the
table, so that no cut shows the half of it. What it reports then does not depend on earlier reports:
buffered messages are decoded again. Without transactions nothing is buffered, and the first row
of a table that comes truncates it.

A table without rows is in no event. It is emptied where the connector's notifications say that the snapshot
has looked at it: with the snapshot's rows, or with the first change after it where it has none at all.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.model.rows.keyless import is_keyless
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.wire.message_contents import Notification, SourceInfo, TransactionEnd
from cdc_platform.sources.debezium.wire.positions import INCREMENTAL, commit_of, is_snapshot, snapshot_key

LAST: Final = "last"
IN_SNAPSHOT: Final = "in_snapshot"
"""In the metadata of changes that a snapshot may have had already."""
BUFFERED: Final = "snapshot "
_NEVER: Final = 2**63
"""A moment later than all others, for changes that do not state theirs."""
_BOUNDARIES: Final = frozenset({"first", "first_in_data_collection", "last_in_data_collection", LAST})
"""Each table that has rows has at least one row that is called so, and its first one always is."""


@dataclass(slots=True)
class ServerSnapshots:
    """Snapshots of a server that its events have shown: positions in its log.

    Args:
        first: the one that the stream began with, 0 where it began without.
        newest: the newest one.
        open: one that replaces tables and has not ended.
        tables: newest snapshot of each table that a snapshot replaces.
        changed: when each table was changed last, in microseconds.
        taken: when the newest repeated snapshot of each table that one replaces was taken, in microseconds.
        empty: tables that a snapshot has found empty, each with the identity of the notification that said
            so, and the position at which they are emptied, 0 while none has come.
    """

    first: int
    newest: int = 0
    open: int | None = None
    tables: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    empty: dict[str, tuple[str, int]] = field(default_factory=dict)

    def see(self, source: SourceInfo, *, is_buffered: bool) -> tuple[int, ...]:
        """Process an event, and return the positions of the snapshots whose end it shows.

        ``is_buffered`` means that its snapshot replaces its table: its rows wait for the snapshot to end.
        """
        ends = []
        lsn = position_of(source)
        if self.open is not None and (lsn is None or lsn > self.open):
            ends.append(self.open)
            self.open = None
        if lsn is not None:
            self.newest = max(self.newest, lsn)
            is_over = source.snapshot == LAST or lsn < self.newest
            if is_over and (is_buffered or self.open == lsn):
                ends.append(lsn)
                self.open = None if self.open == lsn else self.open
            elif is_buffered:
                self.open = lsn
        return tuple(ends)

    def is_at_rest(self, lsn: int | None) -> bool:
        """Return whether no snapshot is under way, and no table is emptied at a position or waits for one."""
        return self.open is None and not any(place in (0, lsn) for _, place in self.empty.values())

    def change(self, table: str, moments: Sequence[int | None]) -> None:
        """Take note of when a table was changed."""
        newest = max(micros or _NEVER for micros in moments)
        self.changed[table] = max(newest, self.changed.get(table, 0))

    def begins(self, table: str, lsn: int) -> bool:
        """Take a row of a table, and return whether it is the first one that the table has of a snapshot."""
        is_first = self.tables.get(table, 0) < lsn
        self.tables[table] = max(self.tables.get(table, 0), lsn)
        return is_first

    def mark_doubtful(self, change: SourceEvent, source: SourceInfo) -> SourceEvent:
        """Return a change, with a note where a snapshot may have had it already, and its row has no key.

        A blocking snapshot counts at the position of its signal, and reads what is there later; the changes
        between still come after it. Of a row with a key the last one counts, without one they add up.
        """
        if not is_keyless(change.keys) or (source.micros or _NEVER) > self.taken.get(change.table, 0):
            return change
        metadata = json.loads(change.metadata or "{}") | {IN_SNAPSHOT: [change.mod_type.value]}
        return change._replace(metadata=json.dumps(metadata, ensure_ascii=False))

    def emptied_at(self, source: SourceInfo) -> list[str]:
        """Return the tables that are emptied before an event; it gives those a position that had none."""
        place = source.lsn
        if place is None or source.snapshot == INCREMENTAL or not self.empty:
            return []
        if is_snapshot(source) and source.snapshot not in _BOUNDARIES:
            return []
        for table, (identity, position) in self.empty.items():
            if position == 0:
                self.empty[table] = (identity, place)
        if place == self.first:
            return []  # there was nothing before
        return [table for table, (_, position) in self.empty.items() if position == place]


def position_of(source: SourceInfo) -> int | None:
    """Return the position of the snapshot that an event is of; None for a change."""
    return source.lsn if is_snapshot(source) and source.snapshot != INCREMENTAL else None


@dataclass(slots=True)
class SnapshotWatch:
    """Follows the snapshots of all servers; ``servers`` is what it continues with in the next cycle."""

    servers: dict[str, ServerSnapshots] = field(default_factory=dict)

    def find_empty(self, notification: Notification, table: str) -> None:
        """Take a notification of a table without rows, unless the table has newer changes."""
        server_snapshots = self.servers.get(notification.server)
        if server_snapshots is None or server_snapshots.empty.get(table, ("", 0))[0] == notification.identity:
            return
        if notification.micros is not None and server_snapshots.changed.get(table, 0) <= notification.micros:
            server_snapshots.empty[table] = (notification.identity, 0)

    def take(
        self,
        source: SourceInfo,
        changes: Sequence[SourceEvent],
        *,
        replaces: bool,
        is_buffered: bool = True,
    ) -> list[SourceEvent | TransactionEnd]:
        """Return an event's changes, with what a repeated snapshot that replaces the table adds to them.

        Args:
            source: of the event.
            changes: the event's.
            replaces: whether a repeated snapshot is to replace the table.
            is_buffered: whether a snapshot is buffered until it is whole.
        """
        lsn = position_of(source)
        server_snapshots = self.servers.get(source.server)
        if server_snapshots is None:
            server_snapshots = self.servers[source.server] = ServerSnapshots(lsn or 0)
        if lsn is None:
            for change in changes:
                server_snapshots.change(change.table, (source.micros,))
            changes = [server_snapshots.mark_doubtful(change, source) for change in changes]
            if server_snapshots.is_at_rest(source.lsn):
                return [*changes]
        is_replaced = replaces and lsn not in (None, server_snapshots.first)
        ends = server_snapshots.see(source, is_buffered=is_replaced)
        empty = [
            _truncation(source, changes[0], table) for table in server_snapshots.emptied_at(source) if changes
        ]
        output: list[SourceEvent | TransactionEnd] = [*empty, *changes]
        if is_replaced and lsn is not None:
            is_first = [server_snapshots.begins(change.table, lsn) for change in changes]
            server_snapshots.taken |= {change.table: source.micros or 0 for change in changes}
            truncates = source.snapshot in _BOUNDARIES if is_buffered else any(is_first)
            start = [_truncate(source, change, lsn) for change in changes[:1] if truncates]
            output = [change._replace(transaction_id=_name(lsn)) for change in [*empty, *start, *changes]]
        return [*output, *(TransactionEnd(_name(lsn), 0) for lsn in ends)]


def is_buffered_snapshot(transaction_id: str) -> bool:
    """Return whether what looks like a transaction is a snapshot that replaces tables."""
    return transaction_id.startswith(BUFFERED)


def _name(lsn: int) -> str:
    return f"{BUFFERED}{lsn}"


def _truncate(source: SourceInfo, change: SourceEvent, lsn: int) -> SourceEvent:
    """Return what empties the table before all rows of the snapshot; it may come several times."""
    identity = [source.server, "snapshot", lsn, source.schema, source.table]
    return change._replace(
        mod_type=ModType.TRUNCATE,
        ordering_key=snapshot_key(lsn),
        event_id=json.dumps(identity, ensure_ascii=False),
        column_types="[]",
        keys="{}",
        new_values=None,
        old_values=None,
        previous_keys=None,
        unavailable_columns=(),
        metadata=json.dumps({"op": "t", "snapshot": LAST, "lsn": lsn}),
    )


def _truncation(source: SourceInfo, change: SourceEvent, table: str) -> SourceEvent:
    """Return what empties a table of which a snapshot has no row, before an event that comes after it."""
    commit = commit_of(change.ordering_key)
    identity = [source.server, "snapshot", source.lsn, "", table]
    truncate = _truncate(source, change, commit)
    return truncate._replace(
        table=table, transaction_id="", event_id=json.dumps(identity, ensure_ascii=False)
    )
