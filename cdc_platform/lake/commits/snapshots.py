"""Old snapshots: those that may expire, and small tables whose writers expire them, without Spark."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import pyarrow as pa
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots, _OverwriteFiles

from cdc_platform.lake.catalog.files import files_of
from cdc_platform.lake.commits.branches import assert_head
from cdc_platform.lake.commits.commits import BRANCH, MAIN
from cdc_platform.lake.commits.data_files import DataFileWriter
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


class _Replacement(_OverwriteFiles):
    """Replacement of all files; pyiceberg would add one manifest of deleted files for each in the past."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return []


def replace_in_one(
    transaction: Transaction,
    table: Table,
    parts: Iterable[pa.Table],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Replace all rows of a table in one snapshot.

    Pyiceberg's `overwrite` makes two: a table whose newest commit is lost would go back to the first of them,
    which has no rows.

    Args:
        transaction: a transaction of the table.
        table: the table, without partitions.
        parts: the new rows; each part becomes a file.
        properties: further entries of the snapshot's summary.
    """
    writer = DataFileWriter.of(table)
    with _Replacement(
        operation=Operation.APPEND if table.current_snapshot() is None else Operation.OVERWRITE,
        transaction=transaction,
        io=table.io,
        snapshot_properties={**(properties or {})},
    ) as snapshot:
        for task in table.scan().plan_files():
            snapshot.delete_data_file(task.file)
        for file in (file for rows in parts for file in writer.write(rows.to_batches())):
            snapshot.append_data_file(file)


def replace_rows(table: Table, rows: pa.Table) -> None:
    """Replace all rows of a table in one commit, which also expires old snapshots and deletes their files.

    Such a table needs no maintenance, by any process and however often it is written.

    Raises:
        CommitFailedException: another process committed first; nothing was changed.
    """
    before_micros = clock_micros() - SHORT_LIFE_S * MICROS_PER_S
    ids, snapshots = find_expendable(table, before_micros, KEPT_NEWEST), table.metadata.snapshots
    expired_ids = ids if len(ids) >= KEPT_NEWEST else ()
    with table.transaction() as transaction:
        replace_in_one(transaction, table, [rows])
        if expired_ids:
            ExpireSnapshots(transaction).by_ids([*expired_ids]).commit()
    if expired_ids:
        expired_snapshots = (snapshot for snapshot in snapshots if snapshot.snapshot_id in expired_ids)
        files = files_of(table.io, expired_snapshots) - files_of(table.io, table.metadata.snapshots)
        delete_files(table.io, sorted(files))


def forget_snapshots(table: Table) -> None:
    """Remove all snapshots of a table whose files may be missing; thorough maintenance deletes the others.

    Raises:
        CommitFailedException: another process committed first; nothing was changed.
    """
    newest = assert_head(MAIN, table.metadata.current_snapshot_id)
    snapshot_ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": snapshot_ids})
    table.catalog.commit_table(table, (newest,), (removal,))
