"""pyiceberg's catalog of a lake, which recognises its own commits after a conflict, and cleans up others."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import TYPE, Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from cdc_platform.lake.catalog.files import LakeFiles
from cdc_platform.lake.catalog.lake_settings import CATALOG, FORMAT_PROPERTY, LakeSettings
from cdc_platform.lake.catalog.sql_catalog import LakeSqlCatalog, share_parts
from cdc_platform.lake.catalog.vended_files import keep_credentials_fresh
from cdc_platform.lake.local_writer.metadata import Version3Metadata
from cdc_platform.lake.manifests.stored_table import StoredTable

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


class RefusedCommits(_Catalog):
    """Deletes the data files of a commit to one of the platform's own tables that was refused for certain.

    pyiceberg deletes the manifests of such a commit, and no metadata name its data files from then on. Each
    attempt writes new files for these tables; for the others, `row_delta.py` commits the same ones again.
    """

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table.

        Raises:
            CommitFailedException: another commit was first; this one was not made.
        """
        response: CommitTableResponse
        try:
            response = super().commit_table(table, requirements, updates)
        except CommitFailedException:
            if FORMAT_PROPERTY in table.properties:
                for update in updates:
                    if isinstance(update, AddSnapshotUpdate):
                        _delete_added(table.io, update.snapshot)
            raise
        return response


def _delete_added(io: FileIO, snapshot: Snapshot) -> None:
    """Delete the data files that a snapshot adds, as far as possible: the refusal is the error to report."""
    with suppress(Exception):
        own = [file for file in snapshot.manifests(io) if file.added_snapshot_id == snapshot.snapshot_id]
        for entry in chain.from_iterable(manifest.fetch_manifest_entry(io) for manifest in own):
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                io.delete(entry.data_file.file_path)


class SharedParts(_Catalog):
    """Loads tables whose metadata share what no commit changes; the SQL catalog does so for its cache."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the current version of a table.

        Raises:
            NoSuchTableError: the table does not exist.
        """
        table: Table = super().load_table(identifier)
        metadata = share_parts(table.metadata)
        return StoredTable(
            table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config
        )


FILES: Final = f"{LakeFiles.__module__}.{LakeFiles.__qualname__}"


def open_catalog(settings: LakeSettings) -> Catalog:
    """Return the catalog of a lake, which writes tables of every format version.

    Raises:
        ModuleNotFoundError: a library that the catalog's type needs is not installed.
    """
    properties = {PY_IO_IMPL: FILES, **settings.pyiceberg_properties()}
    kind = properties.pop(TYPE)
    return _CLASSES[kind]()(CATALOG, **properties)


class _SqlCatalog(RefusedCommits, LakeSqlCatalog):
    """The tables of a lake in a SQL catalog."""


def _rest() -> type[Catalog]:
    from pyiceberg.catalog.rest import RestCatalog

    class LakeRestCatalog(RefusedCommits, LandedCommits, SharedParts, RestCatalog):
        """The tables of a lake behind a REST catalog, which writes their metadata."""

        def load_table(self, identifier: str | Identifier) -> Table:
            return keep_credentials_fresh(super().load_table(identifier), self.properties)

    return LakeRestCatalog


def _hive() -> type[Catalog]:
    from pyiceberg.catalog.hive import HiveCatalog

    class LakeHiveCatalog(RefusedCommits, SharedParts, Version3Metadata, HiveCatalog):
        """The tables of a lake in a Hive metastore."""

    return LakeHiveCatalog


def _glue() -> type[Catalog]:
    from pyiceberg.catalog.glue import GlueCatalog

    class LakeGlueCatalog(RefusedCommits, LandedCommits, SharedParts, Version3Metadata, GlueCatalog):
        """The tables of a lake in AWS Glue."""

    return LakeGlueCatalog


_CLASSES: Final[Mapping[str, Callable[[], type[Catalog]]]] = {
    "sql": lambda: _SqlCatalog,
    "rest": _rest,
    "hive": _hive,
    "glue": _glue,
}
