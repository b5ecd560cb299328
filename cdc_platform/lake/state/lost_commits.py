"""Commits that the catalog made, and whose files the client has deleted, since it took them for refused.

Where a connection to PostgreSQL ends between a commit and its answer, Iceberg's JDBC catalog sends the commit
again, finds the table changed, by itself, and cleans up as after a conflict; so do all clients of a REST
catalog whose gateway sends a commit again. What they delete belongs to the table's newest snapshot. This can
go when `JdbcTableOperations` looks whether its commit was made before it reports a conflict, as
`BaseMetastoreOperations.checkCommitStatus` does for Hive and Glue, and clients of REST catalogs do so, too.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import CUT, LOG, RAW, Lake, own_tables
from cdc_platform.lake.commits.commits import CYCLE, number_of, read_mark
from cdc_platform.lake.state.cuts import newest_cut

LOGGER: Final = logging.getLogger(__name__)


def take_back_lost(lake: Lake) -> tuple[str, ...]:
    """Take back the newest commit of each branch if its files are gone and nothing builds upon it.

    The cycle that made it makes it again, from what that commit was built upon. A cut's snapshot stays:
    readers may have seen it, so a missing file of it is damage.

    Returns:
        The tables of which a commit was taken back.

    Raises:
        CommitConflict: another run has changed such a table at the same time.
    """
    lost = [
        (table, branch, snapshot)
        for name, table in _tables(lake).items()
        for branch, snapshot in _heads(table)
        if not table.io.new_input(snapshot.manifest_list).exists() and _is_unused(lake, name, snapshot)
    ]
    for table, branch, snapshot in lost:
        _take_back(table, branch, snapshot)
        LOGGER.warning(
            "The newest commit to %s, branch `%s`, has lost its files, as it does where the catalog's answer "
            "to it is lost; it was taken back and will be made again.",
            ".".join(table.name()),
            branch,
        )
    return tuple(dict.fromkeys(".".join(table.name()) for table, _, _ in lost))


def _tables(lake: Lake) -> Mapping[str, Table]:
    """Return the tables of a pipeline by name; its own ones have names that none of the others can have."""
    names = own_tables(hands_out_events=lake.hands_out_events)
    own = {f"{lake.system_namespace}.{name}": lake.system_table(name) for name in names}
    others = ((name, lake.table(name)) for name in lake.table_names())
    return own | {name: table for name, table in others if table is not None}


def _heads(table: Table) -> Iterator[tuple[str, Snapshot]]:
    for name, pointer in table.metadata.refs.items():
        snapshot = table.metadata.snapshot_by_id(pointer.snapshot_id)
        if pointer.snapshot_ref_type is SnapshotRefType.BRANCH and snapshot is not None:
            yield name, snapshot


def _is_unused(lake: Lake, name: str, snapshot: Snapshot) -> bool:
    """Return whether no later step has used what a snapshot holds."""
    if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
        return True
    if name == f"{lake.system_namespace}.{RAW}":
        return (number_of(snapshot, CYCLE) or 0) > read_mark(lake.system_table(LOG)).cycle
    if name == f"{lake.system_namespace}.{CUT}":
        published = filter(None, map(lake.table, lake.table_names()))
        return all(read_mark(table).cycle < (number_of(snapshot, CYCLE) or 0) for table in published)
    cut = newest_cut(lake)
    if name == f"{lake.system_namespace}.{LOG}":
        return (number_of(snapshot, CYCLE) or 0) > (cut.cycle if cut is not None else 0)
    return cut is None or snapshot.snapshot_id not in cut.tables.values()


def _take_back(table: Table, branch: str, snapshot: Snapshot) -> None:
    updates: tuple[TableUpdate, ...] = (
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot.snapshot_id]}),
    )
    if snapshot.parent_snapshot_id is not None:
        reference = table.metadata.refs[branch].model_dump(by_alias=True, exclude_none=True)
        former = {**reference, "snapshot-id": snapshot.parent_snapshot_id, "ref-name": branch}
        updates = (SetSnapshotRefUpdate.model_validate(former), *updates)
    is_newest = AssertRefSnapshotId.model_validate({"snapshot-id": snapshot.snapshot_id, "ref": branch})
    try:
        table.catalog.commit_table(table, (is_newest,), updates)
    except CommitFailedException as error:
        raise CommitConflict(
            f"Another run changed `{'.'.join(table.name())}` at the same time; the next cycle goes on."
        ) from error
