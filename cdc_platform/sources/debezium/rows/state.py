"""State that a decoder keeps from earlier messages, from one cycle to the next."""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.sources.debezium.rows.pairing import DeletedRow, Identity, Pairer
from cdc_platform.sources.debezium.rows.snapshots import ServerSnapshots, SnapshotWatch
from cdc_platform.sources.debezium.wire.message_contents import DataEvent, MessageUnusable, SourceInfo
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.plain_lines import PlainChange
from cdc_platform.sources.debezium.wire.positions import is_snapshot, needs_floor, ordering_key


@dataclass(slots=True)
class StateUse:
    """Facts of earlier messages that a decoder used, or would have used.

    Args:
        names: tables of events, by `SCHEMA.TABLE`.
        identities: tables on whose replica identity an event depended before another event showed it.
        doubtful: the same of inserts with values that may not be sent, and deletes that may name no row.
        shown_full: tables of which an event showed the replica identity FULL.
        shown_other: tables of which an event showed another one.
        changed_unusable: tables whose replica identity became usable or unusable.
        servers: servers of events.
        snapshot_servers: servers of rows from a snapshot.
        lowest_changes: lowest position of a change, by server; 0 if one states none.
        has_notifications: whether the connector has sent a notification about a snapshot.
        lowest_floors: lowest position of a snapshot that an ordering key depended on, by server.
        compared_partitions: partitions with a tombstone before the first flattened event.
        distant_tombstones: partitions with a tombstone that does not directly follow the last event known.
        flat_partitions: partitions with flattened events.
        envelope_topics: topics with events that are not flattened.
        deleted: rows that were deleted.
    """

    names: set[str] = field(default_factory=set)
    identities: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    shown_full: set[str] = field(default_factory=set)
    shown_other: set[str] = field(default_factory=set)
    changed_unusable: set[str] = field(default_factory=set)
    servers: set[str] = field(default_factory=set)
    snapshot_servers: set[str] = field(default_factory=set)
    lowest_changes: dict[str, int] = field(default_factory=dict)
    has_notifications: bool = False
    lowest_floors: dict[str, int] = field(default_factory=dict)
    compared_partitions: set[str] = field(default_factory=set)
    distant_tombstones: set[str] = field(default_factory=set)
    flat_partitions: set[str] = field(default_factory=set)
    envelope_topics: set[str] = field(default_factory=set)
    deleted: set[Identity] = field(default_factory=set)

    @property
    def shown(self) -> set[str]:
        """Tables of which an event showed the replica identity."""
        return self.shown_full | self.shown_other

    def knows_identity(self, name: str) -> bool:
        """Return whether an event has shown the replica identity of a table."""
        return name in self.shown_full or name in self.shown_other

    def depend(self, name: str, *, is_doubtful: bool = False) -> None:
        """Take note of an event that depends on the replica identity of its table."""
        if not self.knows_identity(name):
            (self.doubtful if is_doubtful else self.identities).add(name)

    def show(self, name: str, *, is_full: bool) -> None:
        """Take note of an event that shows the replica identity of its table."""
        (self.shown_full if is_full else self.shown_other).add(name)

    def see(self, source: SourceInfo) -> None:
        """Take note of a data event."""
        self.names.add(source.name)
        self.servers.add(source.server)
        if is_snapshot(source):
            self.snapshot_servers.add(source.server)
        else:
            self.see_changes(source.server, source.lsn or 0)

    def see_changes(self, server: str, lowest_position: int) -> None:
        """Take note of changes."""
        lowest = self.lowest_changes.get(server, lowest_position)
        self.lowest_changes[server] = min(lowest, lowest_position)


FlatEvent = tuple[int, str]
"""Position of a flattened event in its partition, and the key of the row that it deleted, else empty."""


@dataclass(slots=True)
class LearnedFacts:
    """Facts from earlier messages, as they are stored.

    Args:
        floors: position of the last snapshot, by server.
        full: tables whose replica identity was seen to be FULL, by `SCHEMA.TABLE`.
        unusable: tables whose replica identity was seen to be an index other than the key.
        flat_events: last flattened event by partition of its topic.
        owners: the table of the database, `SCHEMA.TABLE`, that each table of the lake is.
        databases: the database of each table of the lake, as far as its events state it.
        keys: key columns of each table of the lake, sorted.
        key_types: types in the lake of the key columns of each table of the lake.
    """

    floors: dict[str, int] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    unusable: set[str] = field(default_factory=set)
    flat_events: dict[str, FlatEvent] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    key_types: dict[str, dict[str, str]] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)

    def as_members(self) -> dict[str, Any]:
        """Return the facts by name."""
        return {member.name: getattr(self, member.name) for member in fields(LearnedFacts)}


@dataclass(slots=True)
class DecoderState(LearnedFacts):
    """State from earlier messages.

    Args:
        pairer: rows that were deleted recently.
        snapshots: the snapshots of each server.
        use: what the decoder has used of it, which the next cycle does not get.
    """

    pairer: Pairer = field(default_factory=Pairer)
    snapshots: SnapshotWatch = field(default_factory=SnapshotWatch)
    use: StateUse = field(default_factory=StateUse)

    def floor_of(self, source: SourceInfo) -> int:
        """Return the position of the last snapshot before an event."""
        floor = self.floors.get(source.server, 0)
        if needs_floor(source):
            lowest = self.use.lowest_floors.get(source.server, floor)
            self.use.lowest_floors[source.server] = min(lowest, floor)
        return floor

    def order_of(self, event: DataEvent) -> str:
        """Return the ordering key of an event that may be a fault; empty if it has none."""
        with suppress(MessageUnusable):
            return ordering_key(event, self.floor_of(event.source))
        return ""

    def remember(self, event: DataEvent | PlainChange) -> None:
        """Take note of an event, or of a plain delete, whose other half may come."""
        if isinstance(event, PlainChange):
            deleted_row = self.pairer.remember_deletion(event)
        else:
            deleted_row = self.pairer.remember(event)
        if deleted_row is not None:
            self.use.deleted.add(deleted_row)

    def note_flat_event(self, message: Message, deleted_key: str) -> None:
        """Note a flattened event, and the key of the row that it deleted, empty for none."""
        self.use.flat_partitions.add(message.place)
        self.flat_events[message.place] = message.position, deleted_key

    def note_envelope(self, message: Message) -> None:
        """Note an event that is not flattened: those of its topic were until the transform was taken away."""
        self.use.envelope_topics.add(message.topic)
        for place in self.flat_places_in({message.topic}):
            del self.flat_events[place]

    def flat_places_in(self, topics: Collection[str]) -> list[str]:
        """Return the partitions of topics with flattened events."""
        return [place for place in self.flat_events if place.rpartition("/")[0] in topics]

    def deleted_key_before(self, tombstone: Message) -> str | None:
        """Return the key that the last flattened event before a tombstone deleted; None in other topics."""
        event = self.flat_events.get(tombstone.place)
        if tombstone.place not in self.use.flat_partitions:
            self.use.compared_partitions.add(tombstone.place)
        if event is None or event[0] + 1 != tombstone.position:
            self.use.distant_tombstones.add(tombstone.place)
        return None if event is None else event[1]

    def savepoint(self, server: str, table: str) -> "TableSavepoint":
        """Return a savepoint of a table of the lake and of its server's snapshot, for `roll_back`."""
        facts = (self.owners, self.keys, self.key_types, self.databases)
        unset = tuple(part for part in facts if table not in part)
        return TableSavepoint(server, table, self.floors.get(server), unset)

    def roll_back(self, savepoint: "TableSavepoint") -> None:
        """Discard what was learned of a table since, from an event that turned out to be a fault."""
        for facts in savepoint.unset:
            facts.pop(savepoint.table, None)
        if savepoint.floor is None:
            self.floors.pop(savepoint.server, None)
        else:
            self.floors[savepoint.server] = savepoint.floor

    def to_json(self) -> str:
        """Return the state as text, equal for equal states."""
        members = self.as_members() | {
            "deleted": self.pairer.to_fields(),
            "snapshots": {server: asdict(snapshots) for server, snapshots in self.snapshots.servers.items()},
        }
        return json.dumps(members, sort_keys=True, default=_as_json)

    @classmethod
    def from_json(cls, text: str | None) -> "DecoderState":
        """Return the state of a text that `to_json` made; None is that of a beginning.

        Raises:
            ValueError, RecursionError: the text is none.
        """
        if text is None:
            return cls()
        entry = parse_stored(text, _StoredState)
        pairer, snapshots = Pairer.from_fields(entry.deleted), SnapshotWatch(entry.snapshots)
        return cls(**entry.as_members(), pairer=pairer, snapshots=snapshots)


def _as_json(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


class TableSavepoint(NamedTuple):
    """State of a table before an event.

    Args:
        server: of the event.
        table: of the lake.
        floor: position of the server's last snapshot.
        unset: facts by table that have no entry for it yet.
    """

    server: str
    table: str
    floor: int | None
    unset: tuple[dict[str, Any], ...]


@dataclass(slots=True, kw_only=True)
class _StoredState(LearnedFacts):
    """A `DecoderState` as its text has it."""

    deleted: list[DeletedRow]
    snapshots: dict[str, ServerSnapshots]
