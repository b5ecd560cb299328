"""Commits without files: a storage confirmed and lost them, or Spark has deleted those of its own commit.

Iceberg's Java clients delete the files of a commit that they consider refused (see `commits/staging.py`),
even of one to a branch on which a table's next version is built. Staging branches can go when
`JdbcTableOperations` looks whether its commit was made before it reports a conflict, as
`BaseMetastoreOperations.checkCommitStatus` does for Hive and Glue, and clients of REST catalogs do so, too.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from cdc_platform.errors import CommitConflict, LakeDamaged
from cdc_platform.lake.catalog.lake import Lake, own_tables
from cdc_platform.lake.commits.branches import assert_head, move_branch, set_branch
from cdc_platform.lake.commits.commits import (
    BRANCH,
    MAIN,
    conflicts_as,
    head,
    is_compaction,
    number_of,
    read_mark,
)
from cdc_platform.lake.commits.staging import is_staging
from cdc_platform.lake.state.cuts import cut_before, list_cuts, newest_cut
from cdc_platform.model.base.stored_names import (
    CHECK_RESULTS,
    COPIES,
    CUT,
    CYCLE,
    DELETION_MARKERS,
    LINEAGE,
    LOG,
    QUARANTINE,
    RAW,
    READ_PROGRESS,
    SCHEMA,
)

LOGGER: Final = logging.getLogger(__name__)

_DERIVED: Final = (LINEAGE, READ_PROGRESS, SCHEMA, CHECK_RESULTS)
"""Tables that continue from where they end: derived from raw records, or written by the next checks."""
_BEFORE_LOG: Final = (RAW, QUARANTINE, DELETION_MARKERS)
"""Tables to which a cycle commits before it commits to the log."""


def revert_lost_commits(lake: Lake) -> tuple[str, ...]:
    """Take back the newest commit of each branch if its files are gone and nothing builds on it.

    Its cycle makes the commit again from the same base. A missing file of any other commit is damage: that of
    a snapshot in a cut, or of a cycle of the log.

    Returns:
        The tables with a commit that was taken back.

    Raises:
        CommitConflict: another run has changed such a table at the same time.
    """
    cuts = f"{lake.system_namespace}.{CUT}"
    # Cuts come first, because only they show whether a commit of another table is used.
    losses = [*_revert_lost_of(lake, {cuts: lake.system_table(CUT)})]
    tables = {name: table for name, table in _tables(lake).items() if name != cuts}
    return tuple(dict.fromkeys([*losses, *_revert_lost_of(lake, tables)]))


def _revert_lost_of(lake: Lake, tables: Mapping[str, Table]) -> Iterator[str]:
    """Take back the lost commits of some tables, and yield the names of these tables."""
    snapshots = _cut_snapshots(lake)
    lost_commits = [
        (table, branch, snapshot)
        for name, table in tables.items()
        for branch, snapshot in _heads(table)
        # A cycle leaves few of a thousand tables with a commit that is in no cut.
        if snapshot.snapshot_id not in snapshots
        and not table.io.new_input(snapshot.manifest_list).exists()
        and _has_parent(table, snapshot)
        and _is_unused(lake, name, table, snapshot)
    ]
    for table, branch, snapshot in lost_commits:
        name = ".".join(table.name())
        if name == f"{lake.system_namespace}.{CUT}":
            _move_back(lake, table, snapshot)
        _take_back(table, branch, snapshot)
        LOGGER.warning(
            "The files of the newest commit to %s, branch `%s`, are missing: the storage has lost them, or "
            "the catalog's answer to the commit was lost. The commit is reverted, and is made again.",
            name,
            branch,
        )
        yield name


def _cut_snapshots(lake: Lake) -> Collection[int]:
    """Return the snapshots of the newest cut; none if the cut's own files are missing."""
    try:
        cut = newest_cut(lake)
    except LakeDamaged:
        return ()
    return frozenset(cut.tables.values()) if cut is not None else ()


def _tables(lake: Lake) -> Mapping[str, Table]:
    """Return the tables of a pipeline by name; no other table can have the name of a system table."""
    names = own_tables(delivers_events=lake.delivers_events)
    system_tables = {f"{lake.system_namespace}.{name}": lake.system_table(name) for name in names}
    return system_tables | dict(_merged_tables(lake))


def _merged_tables(lake: Lake) -> Iterator[tuple[str, Table]]:
    """Yield the tables that cycles have written, without foreign tables of the namespace."""
    for name in lake.table_names():
        with suppress(LakeDamaged):
            table = lake.table(name)
            if table is not None and (BRANCH in table.metadata.refs or read_mark(table).cycle):
                yield name, table


def _heads(table: Table) -> Iterator[tuple[str, Snapshot]]:
    for branch in (MAIN, BRANCH):
        snapshot = head(table, branch) if branch in table.metadata.refs else None
        if snapshot is not None:
            yield branch, snapshot


def _has_parent(table: Table, snapshot: Snapshot) -> bool:
    """Return whether the parent of a commit exists, if it had one."""
    parent = snapshot.parent_snapshot_id
    return parent is None or table.metadata.snapshot_by_id(parent) is not None


def _is_unused(lake: Lake, name: str, table: Table, snapshot: Snapshot) -> bool:
    """Return whether no later step has used the content of a snapshot."""
    cycle = number_of(snapshot, CYCLE) or 0
    # A table of the source may have the name `files` or `cuts`.
    namespace, _, system_name = name.rpartition(".")
    system_name = system_name if namespace == lake.system_namespace else ""
    if system_name in _DERIVED or (system_name and is_compaction(snapshot)):
        return True
    if system_name == COPIES:
        return False
    if system_name in _BEFORE_LOG:
        return cycle > read_mark(lake.system_table(LOG)).cycle
    if system_name == CUT:
        return _places_before(lake, table, snapshot) is not None
    if system_name == LOG:
        cut = newest_cut(lake)
        return cycle > (cut.cycle if cut is not None else 0)
    names = {
        ref
        for ref, pointer in table.metadata.refs.items()
        if pointer.snapshot_id == snapshot.snapshot_id and not is_staging(table, ref)
    }
    is_in_cut = any(snapshot.snapshot_id in cut.tables.values() for cut in list_cuts(lake))
    return names <= {MAIN, BRANCH} and not is_in_cut


def _places_before(lake: Lake, cuts: Table, lost_commit: Snapshot) -> Mapping[str, int] | None:
    """Return the former snapshots of tables that moved to a lost cut, by name; None if one has none.

    A table that no cut named before began with an empty snapshot. The content of the cut is still on the
    branches, so the next cycle publishes it again.
    """
    cycle = number_of(lost_commit, CYCLE)
    if cycle is None:
        return {}
    tables = {name: table for name, table in _merged_tables(lake) if read_mark(table).cycle >= cycle}
    former = cut_before(cuts, lost_commit) if tables else None
    snapshots = former.tables if former is not None else {}
    places = {name: snapshots.get(name) or _empty_beginning(table) for name, table in tables.items()}
    is_kept = all(tables[name].metadata.snapshot_by_id(place) for name, place in places.items())
    return places if is_kept else None


def _empty_beginning(table: Table) -> int:
    """Return the snapshot with which a table began, -1 if it had rows or has expired."""
    first = table.metadata.snapshots[0]
    return first.snapshot_id if number_of(first, "total-records") == 0 else -1


def _move_back(lake: Lake, cuts: Table, lost_commit: Snapshot) -> None:
    """Move `main` of all tables back to before a lost cut, as if the run had ended before the cut.

    The cut is taken back afterwards, so that a run that dies in between repeats this.

    Raises:
        CommitConflict: another run has taken the cut back, and may have published it again.
    """
    for name, snapshot_id in (_places_before(lake, cuts, lost_commit) or {}).items():
        table = lake.table(name)
        if head(lake.system_table(CUT)) != lost_commit:
            raise CommitConflict(_overtaken(cuts))
        if table is not None:
            move_branch(table, MAIN, snapshot_id)


def _take_back(table: Table, branch: str, snapshot: Snapshot) -> None:
    updates: tuple[TableUpdate, ...] = (
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot.snapshot_id]}),
    )
    if snapshot.parent_snapshot_id is not None:
        updates = (set_branch(table, branch, snapshot.parent_snapshot_id), *updates)
    with conflicts_as(_overtaken(table)):
        table.catalog.commit_table(table, (assert_head(branch, snapshot.snapshot_id),), updates)


def _overtaken(table: Table) -> str:
    return f"Another run changed `{'.'.join(table.name())}` at the same time; the next cycle continues."
