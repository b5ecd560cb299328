"""Old snapshots: those that may expire, and small tables whose writers expire them, without Spark."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots

from cdc_platform.lake.catalog.files import files_of
from cdc_platform.lake.commits.branches import assert_head
from cdc_platform.lake.commits.commits import BRANCH, MAIN, head
from cdc_platform.lake.commits.metadata_files import delete_files
from cdc_platform.model.base.timestamps import MICROS_PER_S, clock_micros

SHORT_LIFE_S: Final = 60
"""Time for which every snapshot of a small table, which is always read whole, stays."""
KEPT_NEWEST: Final = 10
"""Number of newest snapshots that `replace_rows` keeps, and of old ones that it expires together."""


def find_expendable(
    table: Table, before_micros: int, keep_newest: int, protected: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the snapshots from before a moment that may expire, oldest first.

    Snapshots with tags stay, and so do the ancestors of foreign branches, and the newest snapshots of the
    platform's branches, which record the progress of a pipeline.

    Args:
        table: the present table.
        before_micros: younger snapshots stay.
        keep_newest: number of newest snapshots that stay at any age.
        protected: further snapshots that stay.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    stay = set(protected)
    for name, ref in table.metadata.refs.items():
        is_tag = ref.snapshot_ref_type is SnapshotRefType.TAG
        limit = 1 if is_tag else keep_newest if name in (MAIN, BRANCH) else None
        stay.update(islice(_chain(snapshots, ref.snapshot_id), limit))
    return tuple(
        snapshot.snapshot_id
        for snapshot in sorted(snapshots.values(), key=lambda snapshot: snapshot.timestamp_ms)
        if snapshot.timestamp_ms * 1000 < before_micros and snapshot.snapshot_id not in stay
    )


def _chain(snapshots: Mapping[int, Snapshot], newest: int) -> Iterator[int]:
    snapshot_id: int | None = newest
    while snapshot_id is not None and snapshot_id in snapshots:
        yield snapshot_id
        snapshot_id = snapshots[snapshot_id].parent_snapshot_id


def replace_rows(table: Table, rows: pa.Table) -> None:
    """Replace all rows of a table in one commit, which also expires old snapshots and deletes their files.

    Such a table needs no maintenance, by any process and however often it is written.

    Raises:
        CommitFailedException: another process committed first; nothing was changed.
    """
    before_micros = clock_micros() - SHORT_LIFE_S * MICROS_PER_S
    old, snapshots = find_expendable(table, before_micros, KEPT_NEWEST), table.metadata.snapshots
    expired = old if len(old) >= KEPT_NEWEST else ()
    with table.transaction() as transaction:
        (transaction.append if head(table) is None else transaction.overwrite)(rows)
        if expired:
            ExpireSnapshots(transaction).by_ids([*expired]).commit()
    if expired:
        expired_files = files_of(table.io, (old for old in snapshots if old.snapshot_id in expired))
        delete_files(table.io, sorted(expired_files - files_of(table.io, table.metadata.snapshots)))


def forget_snapshots(table: Table) -> None:
    """Remove all snapshots of a table whose files may be missing; thorough maintenance deletes the others.

    Raises:
        CommitFailedException: another process committed first; nothing was changed.
    """
    newest = assert_head(MAIN, table.metadata.current_snapshot_id)
    snapshot_ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": snapshot_ids})
    table.catalog.commit_table(table, (newest,), (removal,))
