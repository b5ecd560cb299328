"""Changes to a table of format version 3 in this process, without Spark; the entry point of this folder.

The folder can be removed when pyiceberg writes version 3: setup.cfg names the upstream changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.local_writer.key_lookup import (
    ROW_ID,
    Codes,
    MatchedRows,
    candidate_files,
    find_rows,
    read_rows,
)
from cdc_platform.lake.local_writer.row_delta import RowDelta, commit_row_delta
from cdc_platform.lake.local_writer.table_files import TableFiles, files_in, is_writable, read_files

ROW_ID_COLUMN: Final = ROW_ID.name
"""The column that keeps the identity of a row for readers when it moves to another file."""
NO_KEYS: Final[Codes] = np.array([], dtype=np.int64)
ANYWHERE: Final[Mapping[str, object]] = {}


@dataclass(frozen=True)
class KeyRows:
    """The rows of a table with some keys, by file."""

    parts: Sequence[MatchedRows]

    @cached_property
    def keys(self) -> Codes:
        """The key of each row, as its number among the keys of the lookup."""
        return np.concatenate([NO_KEYS, *(part.keys for part in self.parts)])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    def where(self, mask: npt.NDArray[np.bool_]) -> "KeyRows":
        """Return the chosen rows."""
        if not self.parts:
            return self
        ends = np.cumsum([len(part) for part in self.parts])[:-1]
        parts = [part.where(flags) for part, flags in zip(self.parts, np.split(mask, ends), strict=True)]
        return KeyRows([part for part in parts if len(part)])


@dataclass(frozen=True)
class LocalTable:
    """A snapshot of a table, with its files, that this process can read by keys, and the base of a commit."""

    table: Table
    base: Snapshot
    files: TableFiles

    def candidate_files(self, keys: pa.Table, partition: Mapping[str, object] = ANYWHERE) -> list[DataFile]:
        """Return the data files that may have rows of some keys.

        Args:
            keys: the keys, by the names of the table's columns.
            partition: values of columns that the rows have, for files of other partitions to be left out.
        """
        within = files_in(self.table, self.files.data, partition)
        return candidate_files(self.table, within, keys) if keys.num_rows else []

    def find(self, within: Sequence[DataFile], keys: pa.Table) -> KeyRows:
        """Return the rows with some keys.

        Args:
            within: the data files to read.
            keys: distinct keys, by the names of the table's columns.
        """
        return KeyRows(find_rows(self.table, self.files, within, keys))

    def read(self, rows: KeyRows, columns: Sequence[str]) -> pa.Table:
        """Return columns of rows in order, and their ids in the column `_row_id`."""
        return read_rows(self.table, rows.parts, columns)

    def commit(self, key_rows: KeyRows, rows: pa.Table, branch: str, properties: Mapping[str, str]) -> int:
        """Remove rows and add others in one commit, and return the snapshot's id.

        Args:
            key_rows: the rows to remove.
            rows: the rows to add, with the table's types; `_row_id` has the ids of rows that they replace.
            branch: the branch, whose newest snapshot is the base.
            properties: entries of the snapshot's summary.

        Raises:
            CommitConflict: another run has changed the branch; nothing was committed.
        """
        delta = RowDelta(self.base, self.files, key_rows.parts, rows, properties)
        return commit_row_delta(self.table, delta, branch)


def open_local(table: Table, base: Snapshot) -> LocalTable | None:
    """Return a snapshot of a table for this process; None if only Spark can change the table.

    That applies to tables of another format version, with encryption, whose partitions are computed values or
    floating-point numbers, or have changed, or whose rows are not deleted by deletion vectors.
    """
    files = read_files(table, base)
    return LocalTable(table, base, files) if files is not None else None


def commit_first(table: Table) -> bool:
    """Commit an empty first snapshot to a new table; return False if only Spark can change the table.

    Raises:
        CommitConflict: other runs have changed the table at each attempt, and it has no snapshot.
    """
    if not is_writable(table):
        return False
    try:
        commit_row_delta(table, RowDelta(None, TableFiles((), (), {}), (), pa.table({})), MAIN_BRANCH)
    except CommitConflict:
        if table.refresh().current_snapshot() is None:
            raise
    return True
