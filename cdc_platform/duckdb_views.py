"""Tables of a cut as DuckDB's views, which its Iceberg extension reads when a query asks for them.

The extension and the one it needs for Avro come from PyPI: otherwise a query would wait for their download.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc_platform.errors import LibraryMissing
from cdc_platform.model.base.libraries import install_command, optional_library

if TYPE_CHECKING:
    import duckdb

EXTENSIONS: Final = ("avro", "iceberg")
EXTRA: Final = "duckdb"
_LOCAL: Final = "file:"


def is_local(metadata_file: str) -> bool:
    """Return whether a table lies in files that the extension reads without a login."""
    return metadata_file.startswith((_LOCAL, "/"))


def load_extensions(connection: "duckdb.DuckDBPyConnection") -> None:
    """Load what reads Iceberg's tables.

    Raises:
        LibraryMissing: it is not installed, or for another version of DuckDB.
    """
    version = optional_library("duckdb", EXTRA).__version__
    for name in EXTENSIONS:
        package = Path(optional_library(f"duckdb_extension_{name}", EXTRA).__file__).parent
        file = package / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if not file.exists():
            raise LibraryMissing(
                f"The installed DuckDB extension `{name}` is not for DuckDB {version}: "
                f"{install_command(EXTRA)}"
            )
        connection.load_extension(str(file))


def create_view(
    connection: "duckdb.DuckDBPyConnection", name: str, metadata_file: str, snapshot_id: int
) -> None:
    """Create the view of a table's snapshot, under the table's own name in quotes.

    That of a table in a named schema can also be written without quotes, as in `FROM shop.orders`.

    Args:
        connection: a connection that has the extensions.
        name: name of the table, as at the source.
        metadata_file: the table's metadata in the lake.
        snapshot_id: the snapshot.
    """
    place = _literal(metadata_file.removeprefix(_LOCAL))
    rows = f"SELECT * FROM iceberg_scan({place}, snapshot_from_id = {snapshot_id}::UBIGINT)"
    connection.execute(f"CREATE OR REPLACE VIEW {_quoted(name)} AS {rows}")
    schema, _, bare = name.partition(".")
    if bare and "." not in bare:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
        connection.execute(f"CREATE OR REPLACE VIEW {_quoted(schema)}.{_quoted(bare)} AS {rows}")


def connect() -> "duckdb.DuckDBPyConnection":
    """Return a new database in memory.

    Raises:
        LibraryMissing: DuckDB is not installed.
    """
    connection: duckdb.DuckDBPyConnection = optional_library("duckdb", EXTRA).connect()
    return connection


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
