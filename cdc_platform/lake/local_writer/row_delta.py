"""One commit that removes rows from a table and adds others, without Spark."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pydantic import PrivateAttr
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
)
from pyroaring import BitMap64

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.local_writer.data_files import write_rows
from cdc_platform.lake.local_writer.deletion_vectors import write_vectors
from cdc_platform.lake.local_writer.key_lookup import MatchedRows
from cdc_platform.lake.local_writer.manifests import (
    ManifestWriterV3,
    Numbering,
    number_manifests,
    vector_place,
    with_version_3,
    write_manifest_list,
)
from cdc_platform.lake.local_writer.table_files import TableFiles
from cdc_platform.lake.manifests.stored_manifests import read_entries

TRIES: Final = 4
ENGINE: Final = "cdc_platform"


@dataclass(frozen=True)
class RowDelta:
    """Changes of one commit: rows to remove and rows to add.

    ``files`` are those of the base, the snapshot before the commit; a new table has none. Rows that replace
    removed ones may have their ids, in the column `_row_id`.
    """

    base: Snapshot | None
    files: TableFiles
    deleted: Sequence[MatchedRows]
    rows: pa.Table
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def base_id(self) -> int | None:
        """Snapshot id of the base."""
        return self.base.snapshot_id if self.base is not None else None


def commit_row_delta(table: Table, delta: RowDelta, branch: str) -> int:
    """Commit a change to a branch, and return the snapshot's id.

    Args:
        table: the table, which `is_writable` accepts.
        delta: the changes to the base.
        branch: the branch, whose newest snapshot is the base; in a new table, it does not exist yet.

    Raises:
        CommitConflict: another run has changed the branch; nothing was committed.
    """
    commit = _Commit(table, delta, branch)
    for last in range(1, TRIES + 1):
        try:
            _Update(Transaction(table, autocommit=True), commit).commit()
        except CommitFailedException as error:
            table = table.refresh()
            snapshot = table.metadata.snapshot_by_id(commit.snapshot_id)
            if snapshot is not None:
                # Committed by this attempt or an earlier one, perhaps below commits of other runs.
                commit.drop_lists_but(snapshot.manifest_list)
                break
            newest = table.snapshot_by_name(branch)
            if last == TRIES or (newest and newest.snapshot_id) != delta.base_id:
                commit.take_back()
                raise CommitConflict(
                    f"Another run has changed the branch `{branch}` of {'.'.join(table.name())}; nothing was "
                    "committed, and the next cycle resumes from its commit."
                ) from error
        else:
            commit.drop_lists_but(commit.lists[-1])
            break
    return commit.snapshot_id


class _AssertSameHead(AssertRefSnapshotId):
    """Requirement that the branch has not moved, and that no commit to another branch took the same numbers.

    pyiceberg 0.12 compares sequence numbers only for tables of version 2, and Java cannot open a table with
    one that is greater than the last.
    """

    _sequence_number: int = PrivateAttr(default=0)

    def with_number(self, sequence_number: int) -> "_AssertSameHead":
        """Return the requirement for a commit with this sequence number."""
        self._sequence_number = sequence_number
        return self

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]  # as pyiceberg has it
        """Raise CommitFailedException if another commit was first."""
        super().validate(base_metadata)
        if base_metadata is None or base_metadata.next_sequence_number() != self._sequence_number:
            raise CommitFailedException("another commit to the table has taken its sequence number")


class _Commit:
    """The files of a commit, which are written once for all attempts."""

    def __init__(self, table: Table, delta: RowDelta, branch: str) -> None:
        self.delta, self.branch = delta, branch
        self.snapshot_id = table.metadata.new_snapshot_id()
        self.schema_id = table.metadata.current_schema_id
        self.uuid = uuid4()
        self.lists: list[str] = []
        self._numbers = count()
        self.table = table
        self.added = [with_version_3(file) for file in write_rows(table, delta.rows, self.uuid)]
        self.vectors = self._write_vectors()
        replaced_files = {vector_place(vector).data_file for vector in self.vectors}
        self.outdated = {
            vector_place(entry.data_file): entry.data_file
            for path, entry in delta.files.vectors.items()
            if path in replaced_files
        }
        rewritten = [manifest for manifest in delta.files.manifests if self._is_rewritten(manifest)]
        unchanged_manifests = [manifest for manifest in delta.files.manifests if manifest not in rewritten]
        new_data = self._new_manifest(ManifestContent.DATA, self.added)
        new_deletes = self._new_manifest(ManifestContent.DELETES, self.vectors, rewritten)
        self.manifests = [*new_data, *new_deletes, *unchanged_manifests]

    def metadata_path(self, name: str) -> str:
        return self.table.location_provider().new_metadata_location(name)

    def _write_vectors(self) -> list[DataFile]:
        if not self.delta.deleted:
            return []
        path = self.table.location_provider().new_data_location(f"{self.uuid}-deletes.puffin")
        vectors = (
            (rows.file, rows.deleted | BitMap64(rows.positions.astype("uint64")))
            for rows in self.delta.deleted
        )
        return write_vectors(self.table.io.new_output(path), vectors)

    def _writer(self, content: ManifestContent) -> ManifestWriterV3:
        metadata = self.table.metadata
        output = self.table.io.new_output(self.metadata_path(f"{self.uuid}-m{next(self._numbers)}.avro"))
        return ManifestWriterV3(metadata.spec(), metadata.schema(), output, self.snapshot_id, content)

    def _is_rewritten(self, manifest: ManifestFile) -> bool:
        if manifest.content != ManifestContent.DELETES or not self.outdated:
            return False
        entries = read_entries(self.table.io, manifest)
        return any(vector_place(entry.data_file) in self.outdated for entry in entries)

    def _new_manifest(
        self, content: ManifestContent, files: Sequence[DataFile], rewritten: Sequence[ManifestFile] = ()
    ) -> list[ManifestFile]:
        """Write one manifest of new files, which also takes over the entries of the rewritten manifests."""
        if not files:
            return []
        with self._writer(content) as writer:
            for manifest in rewritten:
                for entry in read_entries(self.table.io, manifest):
                    is_outdated = vector_place(entry.data_file) in self.outdated
                    (writer.delete if is_outdated else writer.existing)(entry)
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self.snapshot_id,
                        sequence_number=None,
                        data_file=file,
                    )
                )
        return [writer.to_manifest_file()]

    def summary(self) -> Summary:
        """Return the snapshot's summary, with updated totals of the base."""
        collector = SnapshotSummaryCollector()
        for file in self.added:
            collector.add_file(file, self.table.schema(), self.table.spec())
        totals = collector.build()
        for word, vectors in (("added", self.vectors), ("removed", list(self.outdated.values()))):
            # Each vector is only a part of a file.
            size = sum(vector_place(file).length for file in vectors)
            size += int(totals.get(f"{word}-files-size", 0))
            rows = sum(file.record_count for file in vectors)
            numbers = {"delete-files": len(vectors), "dvs": len(vectors), "position-deletes": rows}
            numbers["files-size"] = size
            totals |= {f"{word}-{name}": str(number) for name, number in numbers.items() if number}
        deletes = Operation.OVERWRITE if self.added else Operation.DELETE
        operation = deletes if self.vectors else Operation.APPEND
        summary = Summary(operation=operation, **totals, **{"engine-name": ENGINE}, **self.delta.properties)
        base = self.delta.base
        return update_snapshot_summaries(summary, None if base is None else base.summary)

    def take_back(self) -> None:
        """Delete the files of a commit that has finally failed."""
        files = {file.file_path for file in (*self.added, *self.vectors)}
        own_manifests = [file for file in self.manifests if file.added_snapshot_id == self.snapshot_id]
        self._delete([*files, *(manifest.manifest_path for manifest in own_manifests), *self.lists])

    def drop_lists_but(self, list_path: str) -> None:
        """Delete the manifest lists of all attempts except the committed one."""
        self._delete([path for path in self.lists if path != list_path])

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            # A remaining file is only waste: the commit is what counts.
            with suppress(OSError):
                self.table.io.delete(path)


class _Update(UpdateTableMetadata["_Update"]):
    """One attempt to commit, with the current numbers of the table."""

    def __init__(self, transaction: Transaction, commit: _Commit) -> None:
        super().__init__(transaction)
        self._change = commit

    def _commit(self) -> UpdatesAndRequirements:
        commit, metadata = self._change, self._transaction.table_metadata
        parent = commit.delta.base_id
        next_row_id = getattr(metadata, "next_row_id", None) or 0
        numbering = Numbering(commit.snapshot_id, metadata.next_sequence_number(), next_row_id)
        manifests, new_row_ids = number_manifests(commit.manifests, numbering)
        # By attempt, not by sequence number: commits in between may not use one, such as a tag.
        path = commit.metadata_path(f"snap-{commit.snapshot_id}-{len(commit.lists) + 1}-{commit.uuid}.avro")
        commit.lists.append(path)
        write_manifest_list(commit.table.io.new_output(path), manifests, numbering, parent)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": commit.snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": numbering.sequence_number,
                "manifest-list": path,
                "summary": commit.summary(),
                "schema-id": commit.schema_id,
                "first-row-id": numbering.next_row_id,
                "added-rows": new_row_ids,
            }
        )
        # Otherwise the branch would lose its retention settings.
        former = metadata.refs.get(commit.branch)
        reference = former.model_dump(by_alias=True, exclude_none=True) if former else {"type": "branch"}
        new_reference = {**reference, "snapshot-id": commit.snapshot_id, "ref-name": commit.branch}
        requirement = _AssertSameHead.model_validate({"snapshot-id": parent, "ref": commit.branch})
        updates = AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(new_reference)
        return updates, (requirement.with_number(numbering.sequence_number),)
