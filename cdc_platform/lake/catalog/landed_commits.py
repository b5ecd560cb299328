"""Commits that a catalog reports as conflicts although it has made them."""

from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate

if TYPE_CHECKING:  # one of those that it is mixed into
    from pyiceberg.catalog.rest import RestCatalog as _Catalog
else:
    from pyiceberg.catalog import Catalog as _Catalog


class LandedCommits(_Catalog):
    """Checks after a conflict whether the table has the commit.

    If a gateway or client repeats a request because the answer was lost, the catalog reports a conflict: the
    second request finds the commit of the first one. After a conflict pyiceberg deletes the files of the
    commit, which would damage the table.
    """

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table.

        Raises:
            CommitFailedException: another commit was first; this one was not made.
            CommitStateUnknownException: it is unknown whether this one was made.
        """
        response: CommitTableResponse
        try:
            response = super().commit_table(table, requirements, updates)
        except CommitFailedException as conflict:
            snapshots = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
            numbers = [snapshot.snapshot_id for snapshot in snapshots]
            current = self._current(table, conflict) if numbers else None
            if current is None or not any(map(current.metadata.snapshot_by_id, numbers)):
                raise
            response = CommitTableResponse.model_validate(
                {"metadata": current.metadata, "metadata-location": current.metadata_location}
            )
        return response

    def _current(self, table: Table, conflict: CommitFailedException) -> Table:
        try:
            current: Table = self.load_table(table.name())
        except Exception as error:
            raise CommitStateUnknownException(f"{conflict}; the table cannot be read: {error}") from error
        return current
