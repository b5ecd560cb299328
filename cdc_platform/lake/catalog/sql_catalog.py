"""SQL catalog that reads each metadata file once, and shares the parts that no commit changes."""

from collections.abc import Iterable
from threading import Lock
from typing import Any, Final

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, ValidationError
from pyiceberg.io import InputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import bindparam, select
from sqlalchemy.exc import DatabaseError, IntegrityError

from cdc_platform.lake.catalog.files import read_metadata_file
from cdc_platform.lake.local_writer.metadata import Version3Metadata
from cdc_platform.lake.manifests.stored_table import StoredTable

TABLES_MAX: Final = 4096
"""Maximum number of cached tables; beyond that, the oldest entry is dropped."""
SHARED: Final = (
    *("snapshots", "snapshot_log", "metadata_log"),
    *("schemas", "partition_specs", "sort_orders"),
)
"""Parts of a table's metadata whose items never change, but are only added and removed."""
LOCATION: Final = select(IcebergTables.metadata_location).where(
    IcebergTables.catalog_name == bindparam("catalog"),
    IcebergTables.table_namespace == bindparam("namespace"),
    IcebergTables.table_name == bindparam("table"),
)
"""Run some thirty times a cycle, and built once: SQLAlchemy takes longer to build it than to run it."""
LOCATIONS: Final = select(IcebergTables.table_name, IcebergTables.metadata_location).where(
    IcebergTables.catalog_name == bindparam("catalog"),
    IcebergTables.table_namespace == bindparam("namespace"),
)


class LakeSqlCatalog(Version3Metadata, SqlCatalog):
    """The tables of a lake in a SQL catalog.

    A cycle loads each table some ten times, and a metadata file lists every snapshot: reading it takes
    milliseconds for some hundred snapshots. Metadata files never change, so their content is cached until the
    catalog names another one.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._tables: dict[Identifier, Table] = {}
        self._lock = Lock()

    def create_tables(self) -> None:
        """Create the catalog's two tables, or leave that to another process that opens the same new lake."""
        for _ in range(2):
            try:
                return super().create_tables()
            except DatabaseError as error:
                if error.statement is None:  # no connection
                    raise
        return super().create_tables()

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace.

        Raises:
            NamespaceAlreadyExistsError: it exists, maybe since another process created it a moment ago.
        """
        try:
            super().create_namespace(namespace, properties)
        except IntegrityError as error:
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {namespace}") from error

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the current version of a table.

        Raises:
            NoSuchTableError: the table does not exist.
        """
        entry = self._tables.get(Catalog.identifier_to_tuple(identifier))
        location = self._location(identifier)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {identifier}")
        if entry is None or entry.metadata_location != location:
            entry = self._read(Catalog.identifier_to_tuple(identifier), location, entry)
        return StoredTable(
            entry.name(), entry.metadata, entry.metadata_location, entry.io, self, entry.config
        )

    def metadata_files(self, namespace: str) -> dict[str, str]:
        """Return the locations of the metadata files of all tables of a namespace, by table."""
        with self.engine.connect() as connection:
            rows = connection.execute(LOCATIONS, {"catalog": self.name, "namespace": namespace})
            return {name: location for name, location in rows if location is not None}

    def _read(self, identifier: Identifier, location: str, before: Table | None) -> Table:
        file = self._load_file_io(location=location).new_input(location)
        metadata = read_metadata(file, before.metadata.snapshots if before is not None else ())
        io = self._load_file_io(metadata.properties, location)
        table = Table(identifier, share_parts(metadata), location, io, self)
        with self._lock:
            self._tables.pop(table.name(), None)
            while len(self._tables) >= TABLES_MAX:
                del self._tables[next(iter(self._tables))]
            self._tables[table.name()] = table
        return table

    def _location(self, identifier: str | Identifier) -> str | None:
        parameters = {
            "catalog": self.name,
            "namespace": Catalog.namespace_to_string(Catalog.namespace_from(identifier)),
            "table": Catalog.table_name_from(identifier),
        }
        with self.engine.connect() as connection:
            return connection.scalar(LOCATION, parameters)


class _Shared(list[Any]):
    """Items that never change, so a deep copy of the list shares them."""

    def __add__(self, other: list[Any]) -> "_Shared":
        return _Shared(super().__add__(other))

    def __deepcopy__(self, memo: dict[int, object]) -> "_Shared":
        return _Shared(self)


def read_metadata(file: InputFile, reusable: Iterable[Snapshot]) -> TableMetadata:
    """Return the metadata in a file.

    Args:
        file: the metadata file.
        reusable: snapshots of the table to reuse. Thousands of new objects for each commit would soon
            dominate the time of Python's garbage collector.

    Raises:
        ValidationError: the file is not a metadata file.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in reusable}
    try:
        fields = msgspec.json.decode(read_metadata_file(file), type=dict[str, Any])
        entries = [(entry["snapshot-id"], entry) for entry in fields.get("snapshots") or ()]
        fields["snapshots"] = [entry for number, entry in entries if number not in by_id]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ValidationError(f"{file.location} is not a metadata file: {error}") from error
    metadata = TableMetadataUtil.parse_raw(msgspec.json.encode(fields).decode())
    by_id.update((snapshot.snapshot_id, snapshot) for snapshot in metadata.snapshots)
    return metadata.model_copy(update={"snapshots": [by_id[number] for number, _ in entries]})


def share_parts(metadata: TableMetadata) -> TableMetadata:
    """Return a table's metadata with shared snapshots, logs and schemas, which copies do not duplicate.

    Each commit of pyiceberg copies the whole metadata some twenty times, with every snapshot and every column
    of every schema, and then recomputes its caches for each schema. This function can be removed when
    `Transaction.table_metadata` keeps its result, see apache/iceberg-python#3784.
    """
    return metadata.model_copy(update={name: _Shared(getattr(metadata, name)) for name in SHARED})
