"""Facts about the cycle of a snapshot in the snapshot's summary, which are the only record of progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, TypeVar

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from cdc_platform.errors import CdcError, CommitConflict
from cdc_platform.lake.catalog.damage import find_full
from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.stored_names import CYCLE
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.base.timestamps import is_moment

AFTER: Final = "cdc.after-cycle"
"""The newest cycle when a cycle was planned; its commit replaces the rows of all later cycles."""
POSITION: Final = "cdc.position-micros"
NEXT_ORDINAL: Final = "cdc.next-ordinal"
LEFT_SINCE: Final = "cdc.left-since-micros"
"""Fact of the raw records: the age of the oldest data that the cycle left to later ones, if there is any."""
STATS: Final = "cdc.stats"
LATE: Final = "cdc.late"
"""Fact of the log: the tables with changes in a cycle that belong before changes of former cycles."""
TAKEN: Final = "cdc.quarantine"
"""Fact of the log: the snapshot of quarantine whose replays the log has taken."""
BYTES: Final = "cdc.bytes"
"""Memory of the rows of a cycle, if one process had them all in memory."""
ATTEMPT: Final = "cdc.attempt"

Fact = TypeVar("Fact")

MAIN: Final = "main"
BRANCH: Final = "cycle"
"""The branch on which tables are merged before a cut publishes them."""


@dataclass(frozen=True)
class Mark:
    """The newest cycle of a table, and the source position that the table has reached."""

    cycle: int
    position_micros: int | None
    next_ordinal: int


UNMARKED: Final = Mark(cycle=0, position_micros=None, next_ordinal=0)


@dataclass(frozen=True)
class Version:
    """A snapshot of a table as a cache key: its content never changes."""

    location: str
    snapshot_id: int
    table: Table = field(compare=False)

    @classmethod
    def newest(cls, table: Table) -> "Version | None":
        """Return the newest version of a table, None if it has none or is empty."""
        snapshot = head(table)
        is_filled = snapshot is not None and count_rows(snapshot) != 0
        return cls(table.location(), snapshot.snapshot_id, table) if snapshot and is_filled else None


def is_refused(error: Exception) -> bool:
    """Return whether the catalog has rejected a commit because of a newer one."""
    return isinstance(error, CommitFailedException)


@contextmanager
def conflicts_as(message: str, is_conflict: Callable[[Exception], bool] = is_refused) -> Iterator[None]:
    """Raise a `CommitConflict` with a message in place of errors that are conflicts.

    Raises:
        CommitConflict: with the message.
    """
    try:
        yield
    except Exception as error:
        if not is_conflict(error):
            raise
        raise CommitConflict(message) from error


def may_be_overtaken(error: Exception) -> bool:
    """Return whether an attempt that another run has overtaken may end with an error.

    The other run may have moved or removed whatever the attempt reads and writes, so any error of a library
    may be its effect, except that of a full disk.
    """
    return not isinstance(error, CdcError) and find_full(error) is None


def head(table: Table, ref: str = MAIN) -> Snapshot | None:
    """Return the snapshot of a branch, None without one."""
    pointer = table.metadata.refs.get(ref)
    return table.metadata.snapshot_by_id(pointer.snapshot_id) if pointer else None


def head_id(table: Table, ref: str = MAIN) -> int | None:
    """Return the id of a branch's snapshot, None without one."""
    pointer = table.metadata.refs.get(ref)
    return pointer.snapshot_id if pointer else None


def ancestors_of(table: Table, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, newest first, up to the first expired one."""
    if snapshot is None:
        return
    yield snapshot
    # Pyiceberg searches all snapshots for each one.
    by_id = {other.snapshot_id: other for other in table.metadata.snapshots}
    while snapshot := by_id.get(snapshot.parent_snapshot_id or -1):
        yield snapshot


def is_compaction(snapshot: Snapshot) -> bool:
    """Return whether a commit has the same rows as its parent."""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def fact(snapshot: Snapshot, key: str) -> str | None:
    """Return one entry of a snapshot's summary."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def read_fact(snapshot: Snapshot, key: str, parse: Callable[[str], Fact]) -> Fact | None:
    """Return a parsed entry of a snapshot's summary, None without such an entry.

    Raises:
        LakeDamaged: the entry cannot be parsed.
    """
    text = fact(snapshot, key)
    if text is None:
        return None
    # Metadata files are in a folder of the table.
    table_name = PurePosixPath(snapshot.manifest_list).parent.parent.name
    return read_stored(parse, text, table_name, f"snapshot {snapshot.snapshot_id}, entry `{key}`")


def number_of(snapshot: Snapshot, key: str) -> int | None:
    """Return a whole number in a snapshot's summary, None without such an entry.

    Raises:
        LakeDamaged: the entry is not a whole number.
    """
    return read_fact(snapshot, key, whole_number)


def position_of(snapshot: Snapshot) -> int | None:
    """Return the source position in a snapshot's summary, None without one.

    Raises:
        LakeDamaged: the entry is not a position.
    """
    return read_fact(snapshot, POSITION, _position)


def _position(text: str) -> int:
    micros = whole_number(text)
    if not is_moment(micros):
        raise ValueError(f"{micros} is not a moment")
    return micros


def read_mark(table: Table, ref: str = MAIN) -> Mark:
    """Return the mark of a branch's newest snapshot of a cycle (compaction makes other snapshots)."""
    return mark_at(table, head(table, ref))


def mark_at(table: Table, snapshot: Snapshot | None) -> Mark:
    """Return the mark of a snapshot, or of its newest ancestor from a cycle."""
    for ancestor in ancestors_of(table, snapshot):
        cycle = number_of(ancestor, CYCLE)
        if cycle is not None:
            return Mark(cycle, position_of(ancestor), number_of(ancestor, NEXT_ORDINAL) or 0)
    return UNMARKED


def cycles_between(table: Table, after_exclusive: int, until_inclusive: int) -> Iterator[Snapshot]:
    """Yield the snapshots of the cycles of an interval, newest first."""
    for snapshot in ancestors_of(table, head(table)):
        cycle = number_of(snapshot, CYCLE)
        if cycle is None or cycle > until_inclusive:
            continue
        if cycle <= after_exclusive:
            return
        yield snapshot


def bytes_since(table: Table, position_micros: int | None) -> int | None:
    """Return the memory of the cycles after a position, None if a cycle does not state it."""
    total = 0
    for snapshot in ancestors_of(table, head(table)):
        if fact(snapshot, CYCLE) is None:
            continue
        if position_micros is not None and (position_of(snapshot) or 0) <= position_micros:
            break
        snapshot_bytes = number_of(snapshot, BYTES)
        if snapshot_bytes is None:
            return None
        total += snapshot_bytes
    return total


def count_rows(snapshot: Snapshot | None) -> int | None:
    """Return the number of rows in a snapshot's summary, None if the summary lacks it."""
    if snapshot is None:
        return 0
    total, deletes = (number_of(snapshot, key) for key in ("total-records", "total-position-deletes"))
    return total - (deletes or 0) if total is not None else None


def has_at_most(snapshot: Snapshot | None, max_rows: int) -> bool:
    """Return whether a snapshot's summary proves that it has at most `max_rows` rows."""
    rows = count_rows(snapshot)
    return rows is not None and rows <= max_rows
