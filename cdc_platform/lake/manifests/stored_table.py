"""Tables of the lake, whose scans do not read again what a process has read of their manifests."""

from collections.abc import Iterable

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE, DataScan, FileScanTask, ManifestGroupPlanner, Table
from pyiceberg.typedef import EMPTY_DICT, Properties

from cdc_platform.lake.manifests.stored_manifests import read_manifests


class StoredTable(Table):
    """A table of the lake."""

    def refresh(self) -> Table:
        """Load the present version.

        Raises:
            NoSuchTableError: another program has dropped or replaced the table.
        """
        present_table = self.catalog.load_table(self.name())
        if present_table.metadata.table_uuid != self.metadata.table_uuid:
            raise NoSuchTableError(f"{'.'.join(self.name())} was replaced")
        self.metadata, self.metadata_location = present_table.metadata, present_table.metadata_location
        self.io, self.config = present_table.io, present_table.config
        return self

    def scan(
        self,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
    ) -> "StoredScan":
        """Return a scan of one version, the newest one unless given."""
        return StoredScan(
            self.metadata,
            self.io,
            row_filter,
            selected_fields,
            case_sensitive,
            snapshot_id,
            options,
            limit,
            self.catalog,
            self.name(),
        )


class StoredScan(DataScan):
    """A scan that plans with the kept entries of manifests: a cycle scans its own tables several times."""

    def plan_files(self) -> Iterable[FileScanTask]:
        """Return the files that may have rows of the scan."""
        snapshot = self.snapshot()
        is_planned_by_server = self.catalog is not None and self.catalog.supports_server_side_planning()
        if snapshot is None or is_planned_by_server:
            return super().plan_files()
        planner = ManifestGroupPlanner(
            self.table_metadata, self.io, self.row_filter, self.case_sensitive, self.options
        )
        return planner.plan_files(read_manifests(self.io, snapshot))
