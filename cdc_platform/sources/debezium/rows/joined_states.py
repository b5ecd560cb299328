"""Decoder state after a split of a stream that was decoded in parallel with the splits before it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from cdc_platform.sources.debezium.rows.pairing import Pairer
from cdc_platform.sources.debezium.rows.snapshots import ServerSnapshots, SnapshotWatch
from cdc_platform.sources.debezium.rows.state import DecoderState, StateUse

Fact = TypeVar("Fact")
_Servers = Mapping[str, ServerSnapshots]


def joined_state(
    before: DecoderState, start: DecoderState, end: DecoderState, *, is_ordered: bool = True
) -> DecoderState | None:
    """Return the state after a split; None if the split must be decoded again from `before`.

    Decoding a split from an earlier state and from the actual one gives the same events if both states agree
    in the facts that the split used, or if both have learned the same. Where the order of splits is unknown,
    positions decide which snapshot the stream begins with; one decoder of all messages goes by their arrival.

    Args:
        before: state after all earlier splits.
        start: the earlier state from which the split was decoded.
        end: state after the split, with the facts that it used.
        is_ordered: whether the earlier splits precede this one; otherwise their messages come among its own.
    """
    use = end.use
    if use.has_notifications and before.owners != start.owners:
        return None
    snapshots = _joined_snapshots(before, start.snapshots.servers, end, is_ordered=is_ordered)
    owners = _joined_facts(before.owners, start.owners, end.owners)
    keys = _joined_facts(before.keys, start.keys, end.keys)
    key_types = _joined_facts(before.key_types, start.key_types, end.key_types)
    databases = _joined_facts(before.databases, start.databases, end.databases)
    if snapshots is None or owners is None or keys is None or key_types is None or databases is None:
        return None
    if not _has_same_identities(before, start, use):
        return None
    # An ordering key may depend on a snapshot that the split did not know.
    if any(before.floors.get(server, 0) > floor for server, floor in use.lowest_floors.items()):
        return None
    compared_partitions = use.compared_partitions if is_ordered else ()
    if before.flat_places_in(use.envelope_topics) or any(
        before.flat_events.get(place) != start.flat_events.get(place) for place in compared_partitions
    ):
        return None
    return DecoderState(
        floors={server: max(before.floors.get(server, 0), floor) for server, floor in end.floors.items()}
        | {server: floor for server, floor in before.floors.items() if server not in end.floors},
        full=(before.full - use.shown) | (end.full & use.shown),
        unusable=(before.unusable - use.names) | (end.unusable & use.names),
        flat_events=before.flat_events
        | {place: event for place, event in end.flat_events.items() if place in use.flat_partitions},
        owners=owners,
        keys=keys,
        key_types=key_types,
        databases=databases,
        pairer=_joined_pairer(before.pairer, end),
        snapshots=SnapshotWatch(dict(snapshots)),
    )


def _has_same_identities(before: DecoderState, start: DecoderState, use: StateUse) -> bool:
    """Return whether both states agree on the replica identities on which the split depended."""
    full, unusable = before.full ^ start.full, before.unusable ^ start.unusable
    return full.isdisjoint(use.identities | use.doubtful) and unusable.isdisjoint(use.names)


def _joined_facts(
    before: Mapping[str, Fact], start: Mapping[str, Fact], end: Mapping[str, Fact]
) -> dict[str, Fact] | None:
    """Return facts by table that are learned once; None if the split has learned different ones."""
    facts = {table: fact for table, fact in end.items() if table not in start}
    if any(before.get(table, fact) != fact for table, fact in facts.items()):
        return None
    return {**before, **facts}


def _joined_pairer(before: Pairer, end: DecoderState) -> Pairer:
    """Return the last deleted rows in order; both halves of a key change are in one split."""
    deletes = end.use.deleted
    rows = [row for row in before.to_fields() if tuple(row[:4]) not in deletes]
    return Pairer.from_fields([*rows, *(row for row in end.pairer.to_fields() if tuple(row[:4]) in deletes)])


def _joined_snapshots(
    before: DecoderState, start: _Servers, end: DecoderState, *, is_ordered: bool
) -> _Servers | None:
    """Return the snapshots of each server; None if the split may have confused two of them."""
    use, servers = end.use, end.snapshots.servers
    if before.snapshots.servers == start:
        return servers
    if use.has_notifications:
        return None
    snapshots = dict(before.snapshots.servers)
    for server in use.servers & servers.keys():
        actual, assumption, after = before.snapshots.servers.get(server), start.get(server), servers[server]
        is_snapshot = server in use.snapshot_servers
        if actual is None or _is_same(actual, assumption):
            snapshots[server] = after if actual is None else _with_changes(after, actual)
        elif assumption is None and _is_of_beginning(actual, after, is_snapshot=is_snapshot):
            snapshots[server] = _with_changes(actual, after)
        elif assumption is None and not is_ordered and _is_beginning_of(before, server, after):
            snapshots[server] = _with_changes(after, actual)
        else:
            return None
    return snapshots


def _is_same(actual: ServerSnapshots, assumption: ServerSnapshots | None) -> bool:
    """Return whether two differ only in the times of changes to tables."""
    return assumption is not None and replace(actual, changed={}) == replace(assumption, changed={})


def _is_of_beginning(actual: ServerSnapshots, after: ServerSnapshots, *, is_snapshot: bool) -> bool:
    """Return whether there has only been the first snapshot, and the split has rows of no other one."""
    beginning = ServerSnapshots(actual.first, actual.first)
    return _is_same(actual, beginning) and (not is_snapshot or _is_same(after, beginning))


def _is_beginning_of(state: DecoderState, server: str, after: ServerSnapshots) -> bool:
    """Return whether a split has only the first snapshot, and other splits only changes since then."""
    actual = state.snapshots.servers[server]
    is_snapshot = server in state.use.snapshot_servers
    lowest_change = state.use.lowest_changes.get(server, 0)
    return after.first < lowest_change and _is_of_beginning(after, actual, is_snapshot=is_snapshot)


def _with_changes(snapshots: ServerSnapshots, other: ServerSnapshots) -> ServerSnapshots:
    """Return snapshots with the newest time of a change to each table in both."""
    changes = {
        table: max(part.changed.get(table, 0) for part in (snapshots, other))
        for table in {**other.changed, **snapshots.changed}
    }
    return replace(snapshots, changed=changes)
