"""Tables of a cut as DuckDB's views, which its Iceberg extension reads when a query asks for them.

The extension and those that it needs for Avro and S3 come from PyPI: otherwise a query would wait for their
download.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyarrow.fs import resolve_s3_region

from cdc_platform.errors import LibraryMissing
from cdc_platform.model.base.libraries import install_command, optional_library

if TYPE_CHECKING:
    import duckdb

EXTENSIONS: Final = ("avro", "iceberg", "httpfs")
AWS: Final = "aws"
"""The extension that finds keys of S3 where AWS's own tools do."""
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
"""What DuckDB's secrets call the properties of a table's files; of two, the later one counts."""
_KEYS: Final = {"s3.access-key-id", "s3.secret-access-key"}
_OTHER_LOGINS: Final = ("role", "sign", "profile", "anonymous")
"""Words in the names of properties by which pyiceberg logs in, and DuckDB does not."""


def can_scan(metadata_file: str, properties: Mapping[str, str]) -> bool:
    """Return whether the extension may read a table where it lies.

    Args:
        metadata_file: the table's metadata in the lake.
        properties: those of the table's files, which may have keys of an S3 server. Other stores, and other
            ways to log in, are pyiceberg's only.
    """
    if metadata_file.startswith(_S3):
        named = (name for name in properties if name.startswith(("s3.", "client.")))
        return not any(word in name for name in named for word in _OTHER_LOGINS)
    return metadata_file.startswith((_LOCAL, "/"))


def log_in(connection: "duckdb.DuckDBPyConnection", folder: str, properties: Mapping[str, str]) -> bool:
    """Let a connection read the files of a table, for as long as it is open; return whether it can.

    Without keys among the properties, they come from the environment, the profile or the machine.

    Args:
        connection: a connection that has the extensions.
        folder: location of the table; nothing is done unless it is in S3.
        properties: those of the table's files.

    Raises:
        LibraryMissing: there are no keys, and what finds them is not installed.
    """
    if not folder.startswith(_S3):
        return True
    options = {name: properties[key] for key, name in _SECRET.items() if key in properties}
    endpoint = urlsplit(properties.get("s3.endpoint", ""))
    if endpoint.netloc:
        options |= {"ENDPOINT": f"{endpoint.netloc}{endpoint.path.rstrip('/')}"}
        options |= {"USE_SSL": str(endpoint.scheme == "https").lower()}
        is_virtual = properties.get("s3.force-virtual-addressing", "").lower() == "true"
        options |= {"URL_STYLE": "vhost" if is_virtual else "path"}
    elif "REGION" not in options:
        options |= _region(urlsplit(folder).netloc)
    if not properties.keys() >= _KEYS:
        _load_extension(connection, AWS)
        options |= {"PROVIDER": "credential_chain"}
    # With its end, since a scope is a prefix.
    scope = f"{folder.rstrip('/')}/"
    parts = ", ".join(f"{name} {_literal(value)}" for name, value in {**options, "SCOPE": scope}.items())
    try:
        connection.execute(f"CREATE OR REPLACE SECRET {_quoted(scope)} (TYPE s3, {parts})")
    except optional_library("duckdb", EXTRA).Error:
        return False
    return True


def _region(bucket: str) -> dict[str, str]:
    """Return the region of a bucket of AWS, which pyiceberg asks for, too; nothing if AWS does not answer."""
    try:
        return {"REGION": resolve_s3_region(bucket)}
    except OSError:
        return {}


def load_extensions(connection: "duckdb.DuckDBPyConnection") -> None:
    """Load what reads Iceberg's tables.

    Raises:
        LibraryMissing: it is not installed, or for another version of DuckDB.
    """
    for name in EXTENSIONS:
        _load_extension(connection, name)


def _load_extension(connection: "duckdb.DuckDBPyConnection", name: str) -> None:
    version = optional_library("duckdb", EXTRA).__version__
    package = Path(optional_library(f"duckdb_extension_{name}", EXTRA).__file__).parent
    file = package / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
    if not file.exists():
        raise LibraryMissing(
            f"The installed DuckDB extension `{name}` is not for DuckDB {version}: {install_command(EXTRA)}"
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
