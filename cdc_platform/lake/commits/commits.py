"""What a snapshot says about the cycle that made it; no other state is kept about progress."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.lake.catalog.damage import understanding

CYCLE: Final = "cdc.cycle"
POSITION: Final = "cdc.position-micros"
NEXT_ORDINAL: Final = "cdc.next-ordinal"
STATS: Final = "cdc.stats"
LATE: Final = "cdc.late"
"""Of the log: the tables of which a cycle has changes that belong before those of former cycles."""
TAKEN: Final = "cdc.quarantine"
"""Of the log: the snapshot of quarantine whose replays have been taken."""
BYTES: Final = "cdc.bytes"
"""What the rows of a cycle took in memory, where one process had them all there."""
ATTEMPT: Final = "cdc.attempt"

MAIN: Final = "main"
BRANCH: Final = "cycle"
"""The branch that tables are merged on before a cut publishes them."""


@dataclass(frozen=True)
class Mark:
    """The newest cycle that a table carries, and the source position that it brought the table to."""

    cycle: int
    position_micros: int | None
    next_ordinal: int


UNMARKED: Final = Mark(cycle=0, position_micros=None, next_ordinal=0)


@dataclass(frozen=True)
class Version:
    """A snapshot of a table, by which what was read of it can be kept: what it holds never changes."""

    location: str
    snapshot_id: int
    table: Table = field(compare=False)


def head(table: Table, ref: str = MAIN) -> Snapshot | None:
    """Return the snapshot that a branch points at, None when there is none."""
    pointer = table.metadata.refs.get(ref)
    return table.metadata.snapshot_by_id(pointer.snapshot_id) if pointer else None


def ancestors_of(table: Table, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and what it was built upon, newest first, as far as snapshots are kept."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.metadata.snapshot_by_id(parent) if parent is not None else None


def fact(snapshot: Snapshot, key: str) -> str | None:
    """Return one entry of a snapshot's summary."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def read_mark(table: Table, ref: str = MAIN) -> Mark:
    """Return the mark of the newest snapshot that a cycle has made (compaction makes others)."""
    for snapshot in ancestors_of(table, head(table, ref)):
        cycle = fact(snapshot, CYCLE)
        if cycle is not None:
            position, ordinal = fact(snapshot, POSITION), fact(snapshot, NEXT_ORDINAL)
            with understanding(table.name()[-1]):
                return Mark(int(cycle), int(position) if position else None, int(ordinal or 0))
    return UNMARKED


def cycles_between(table: Table, after_exclusive: int, until_inclusive: int) -> Iterator[Snapshot]:
    """Yield the snapshots that cycles of the interval have made, newest first."""
    for snapshot in ancestors_of(table, head(table)):
        cycle = fact(snapshot, CYCLE)
        if cycle is None or int(cycle) > until_inclusive:
            continue
        if int(cycle) <= after_exclusive:
            return
        yield snapshot


def bytes_since(table: Table, position_micros: int | None) -> int | None:
    """Return what the cycles that reach beyond a position took in memory, None where one does not tell."""
    total = 0
    for snapshot in ancestors_of(table, head(table)):
        if fact(snapshot, CYCLE) is None:
            continue
        if position_micros is not None and int(fact(snapshot, POSITION) or 0) <= position_micros:
            break
        told = fact(snapshot, BYTES)
        if told is None:
            return None
        total += int(told)
    return total


def count_rows(snapshot: Snapshot | None) -> int | None:
    """Return the number of rows that a snapshot's summary tells, None when it does not."""
    if snapshot is None:
        return 0
    total, deleted = fact(snapshot, "total-records"), fact(snapshot, "total-position-deletes")
    return int(total) - int(deleted or 0) if total is not None else None


def has_at_most(snapshot: Snapshot | None, most_rows: int) -> bool:
    """Return whether a snapshot's summary tells that it has no more rows."""
    rows = count_rows(snapshot)
    return rows is not None and rows <= most_rows
