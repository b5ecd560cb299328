"""Tables of a cut as DuckDB's views, which its Iceberg extension reads when a query asks for them.

The extension and those that it needs for Avro and S3 come from PyPI: otherwise a query would wait for their
download.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cdc_platform.errors import LibraryMissing
from cdc_platform.model.base.libraries import install_command, optional_library

if TYPE_CHECKING:
    import duckdb

EXTENSIONS: Final = ("avro", "iceberg", "httpfs")
EXTRA: Final = "duckdb"
_LOCAL: Final = "file:"
_S3: Final = "s3:"
_SECRET: Final[Mapping[str, str]] = {
    "s3.access-key-id": "KEY_ID",
    "s3.secret-access-key": "SECRET",
    "s3.session-token": "SESSION_TOKEN",
    "client.region": "REGION",
    "s3.region": "REGION",
}
"""What DuckDB's secrets call the properties of a catalog; of two, the later one counts."""
_KEYS: Final = {"s3.access-key-id", "s3.secret-access-key"}
_PLACES: Final = {"s3.region", "client.region", "s3.endpoint"}


def can_scan(metadata_file: str, catalog: Mapping[str, str]) -> bool:
    """Return whether the extension reads a table where it lies.

    Args:
        metadata_file: the table's metadata in the lake.
        catalog: properties of the lake's catalog, which must have the keys of an S3 server, and its region or
            address: other ways to log in, and other stores, are the lake's own only.
    """
    if metadata_file.startswith(_S3):
        return catalog.keys() >= _KEYS and bool(catalog.keys() & _PLACES)
    return metadata_file.startswith((_LOCAL, "/"))


def log_in(connection: "duckdb.DuckDBPyConnection", folder: str, catalog: Mapping[str, str]) -> None:
    """Let a connection read the files of a table, for as long as it is open.

    Args:
        connection: a connection that has the extensions.
        folder: location of the table; nothing is done unless it is in S3.
        catalog: properties of the lake's catalog.
    """
    if not folder.startswith(_S3):
        return
    options = {name: catalog[key] for key, name in _SECRET.items() if key in catalog}
    endpoint = urlsplit(catalog.get("s3.endpoint", ""))
    if endpoint.netloc:
        options |= {"ENDPOINT": f"{endpoint.netloc}{endpoint.path.rstrip('/')}"}
        options |= {"USE_SSL": str(endpoint.scheme == "https").lower()}
        is_virtual = catalog.get("s3.force-virtual-addressing", "").lower() == "true"
        options |= {"URL_STYLE": "vhost" if is_virtual else "path"}
    # With its end, since a scope is a prefix.
    scope = f"{folder.rstrip('/')}/"
    parts = ", ".join(f"{name} {_literal(value)}" for name, value in {**options, "SCOPE": scope}.items())
    connection.execute(f"CREATE OR REPLACE SECRET {_quoted(scope)} (TYPE s3, {parts})")


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
