"""Facts in the summary of a snapshot about the cycle that made it; the only state kept about progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, TypeVar

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict
from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.stored_texts import read_stored
from cdc_platform.model.base.timestamps import is_moment

CYCLE: Final = "cdc.cycle"
POSITION: Final = "cdc.position-micros"
NEXT_ORDINAL: Final = "cdc.next-ordinal"
STATS: Final = "cdc.stats"
LATE: Final = "cdc.late"
"""Of the log: the tables of which a cycle has changes that belong before those of former cycles."""
TAKEN: Final = "cdc.quarantine"
"""Of the log: the snapshot of quarantine whose replays have been taken."""
BYTES: Final = "cdc.bytes"
"""Memory that the rows of a cycle took, where one process had them all."""
ATTEMPT: Final = "cdc.attempt"

Fact = TypeVar("Fact")

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

    @classmethod
    def newest(cls, table: Table) -> "Version | None":
        """Return the newest version of a table, None where it has none or is empty."""
        snapshot = head(table)
        is_filled = snapshot is not None and count_rows(snapshot) != 0
        return cls(table.location(), snapshot.snapshot_id, table) if snapshot and is_filled else None


@contextmanager
def conflicts_as(message: str) -> Iterator[None]:
    """Raise the catalog's refusal of a commit, since there is a newer one, as our own error.

    Raises:
        CommitConflict: with the message.
    """
    try:
        yield
    except CommitFailedException as error:
        raise CommitConflict(message) from error


def head(table: Table, ref: str = MAIN) -> Snapshot | None:
    """Return the snapshot that a branch points at, None when there is none."""
    pointer = table.metadata.refs.get(ref)
    return table.metadata.snapshot_by_id(pointer.snapshot_id) if pointer else None


def ancestors_of(table: Table, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and what it was built upon, newest first, as far as snapshots are kept."""
    if snapshot is None:
        return
    yield snapshot
    # pyiceberg looks through all snapshots for one of them.
    by_id = {other.snapshot_id: other for other in table.metadata.snapshots}
    while snapshot := by_id.get(snapshot.parent_snapshot_id or -1):
        yield snapshot


def fact(snapshot: Snapshot, key: str) -> str | None:
    """Return one entry of a snapshot's summary."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def read_fact(snapshot: Snapshot, key: str, parse: Callable[[str], Fact]) -> Fact | None:
    """Return what a parser makes of one entry of a snapshot's summary, None where it has no such entry.

    Raises:
        LakeDamaged: the entry is none that is written there.
    """
    text = fact(snapshot, key)
    if text is None:
        return None
    # Metadata lie in a folder of the table's.
    table_name = PurePosixPath(snapshot.manifest_list).parent.parent.name
    return read_stored(parse, text, table_name, f"snapshot {snapshot.snapshot_id}, entry `{key}`")


def number_of(snapshot: Snapshot, key: str) -> int | None:
    """Return a whole number in a snapshot's summary, None where it has no such entry.

    Raises:
        LakeDamaged: the entry is no whole number.
    """
    return read_fact(snapshot, key, whole_number)


def position_of(snapshot: Snapshot) -> int | None:
    """Return the source position that a snapshot's summary names, None where it names none.

    Raises:
        LakeDamaged: the entry is no position.
    """
    return read_fact(snapshot, POSITION, _position)


def _position(text: str) -> int:
    micros = whole_number(text)
    if not is_moment(micros):
        raise ValueError(f"{micros} is no moment")
    return micros


def read_mark(table: Table, ref: str = MAIN) -> Mark:
    """Return the mark of the newest snapshot of a branch that a cycle has made (compaction makes others)."""
    return mark_at(table, head(table, ref))


def mark_at(table: Table, snapshot: Snapshot | None) -> Mark:
    """Return the mark of a snapshot, or of the newest one below it that a cycle has made."""
    for ancestor in ancestors_of(table, snapshot):
        cycle = number_of(ancestor, CYCLE)
        if cycle is not None:
            return Mark(cycle, position_of(ancestor), number_of(ancestor, NEXT_ORDINAL) or 0)
    return UNMARKED


def cycles_between(table: Table, after_exclusive: int, until_inclusive: int) -> Iterator[Snapshot]:
    """Yield the snapshots that cycles of the interval have made, newest first."""
    for snapshot in ancestors_of(table, head(table)):
        cycle = number_of(snapshot, CYCLE)
        if cycle is None or cycle > until_inclusive:
            continue
        if cycle <= after_exclusive:
            return
        yield snapshot


def bytes_since(table: Table, position_micros: int | None) -> int | None:
    """Return what the cycles that reach beyond a position took in memory, None where one does not say."""
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
    total, deleted = (number_of(snapshot, key) for key in ("total-records", "total-position-deletes"))
    return total - (deleted or 0) if total is not None else None


def has_at_most(snapshot: Snapshot | None, most_rows: int) -> bool:
    """Return whether a snapshot's summary shows that it has at most so many rows."""
    rows = count_rows(snapshot)
    return rows is not None and rows <= most_rows
