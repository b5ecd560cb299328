"""Tables of a cut as DuckDB's views, which its Iceberg extension reads when a query asks for them.

The extension and those that it needs for Avro and S3 come from PyPI: otherwise a query would wait while
DuckDB downloads them.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import resolve_s3_region
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

from cdc_platform.errors import LibraryMissing
from cdc_platform.model.base.libraries import install_command, optional_library
from cdc_platform.model.base.names import lake_table_name

if TYPE_CHECKING:
    import duckdb

EXTENSIONS: Final = ("avro", "iceberg", "httpfs")
AWS: Final = "aws"
"""The extension that finds keys of S3 where AWS's own tools do."""
EXTRA: Final = "duckdb"
Name = tuple[str, ...]
"""Name of a view, after that of its schema if it is not in the default one."""
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_LOCAL: Final = "file:"
_S3: Final = ("s3://", "s3a://", "s3n://")
_KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "KEY_ID": ("s3.access-key-id", "client.access-key-id"),
    "SECRET": ("s3.secret-access-key", "client.secret-access-key"),
    "SESSION_TOKEN": ("s3.session-token", "client.session-token"),
}
"""Options of DuckDB's secrets, and the properties of a table's files that set them; the first one wins."""
_REGION: Final[Mapping[str, tuple[str, str]]] = {"REGION": ("s3.region", "client.region")}
_ROLE: Final[Mapping[str, tuple[str, str]]] = {"ASSUME_ROLE_ARN": ("s3.role-arn", "client.role-arn")}
_PROFILE: Final[Mapping[str, tuple[str, str]]] = {"PROFILE": ("s3.profile-name", "client.profile-name")}
_PYICEBERG_ONLY: Final = ("s3.signer", "s3.proxy-uri")
"""Properties that only pyiceberg supports."""


def log_in(connection: "duckdb.DuckDBPyConnection", folder: str, properties: Mapping[str, str]) -> str | None:
    """Let a connection read the files of a table, for as long as it is open; return why it cannot, or None.

    It logs in to S3 as pyiceberg does: anonymously, by a role, by keys, or by those of a profile. Without
    any of them in the properties, the keys come from the environment, the default profile or the machine.

    Args:
        connection: a connection that has the extensions.
        folder: location of the table; DuckDB reads no other stores than S3.
        properties: properties of the table's files.

    Raises:
        LibraryMissing: the extension that finds keys is needed, and is not installed.
    """
    if folder.startswith((_LOCAL, "/")):
        return None
    if not folder.startswith(_S3):
        return f"DuckDB does not log in to `{urlsplit(folder).scheme}` stores as the catalog does"
    foreign = next((name for name in _PYICEBERG_ONLY if properties.get(name)), None)
    if foreign is not None:
        return f"DuckDB has no equivalent of the catalog's property `{foreign}`"
    login = _login(properties)
    if "PROVIDER" in login:
        _load_extension(connection, AWS)
    # With its end, since a scope is a prefix.
    scope = f"{folder.rstrip('/')}/"
    options = {**_server(folder, properties), **login, "SCOPE": scope}
    parts = ", ".join(f"{name} ?" for name in options)
    try:
        # Errors and logs of DuckDB repeat a statement, but not its parameters.
        connection.execute(
            f"CREATE OR REPLACE SECRET {_quote(scope)} (TYPE s3, {parts})", list(options.values())
        )
    except optional_library("duckdb", EXTRA).Error as error:
        return f"DuckDB cannot log in: {' '.join(str(error).split())}"
    return None


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a secret for logging in; none for a public bucket."""
    if property_as_bool(dict(properties), "s3.anonymous", False):
        return {}
    role = _options(_ROLE, properties)
    if role:
        return {"PROVIDER": "credential_chain", "CHAIN": "sts", **role}
    keys = _options(_KEYS, properties)
    if keys.keys() >= {"KEY_ID", "SECRET"}:
        return keys
    return {"PROVIDER": "credential_chain", **_options(_PROFILE, properties)}


def _server(folder: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a secret that name the server: AWS's own if `s3.endpoint` is not set."""
    region = _options(_REGION, properties)
    endpoint = urlsplit(properties.get("s3.endpoint", ""))
    if not endpoint.netloc:
        return region or _region(urlsplit(folder).netloc)
    is_virtual = property_as_bool(dict(properties), "s3.force-virtual-addressing", False)
    return {
        **region,
        "ENDPOINT": f"{endpoint.netloc.rpartition('@')[2]}{endpoint.path.rstrip('/')}",
        "USE_SSL": str(endpoint.scheme == "https").lower(),
        "URL_STYLE": "vhost" if is_virtual else "path",
    }


def _options(names: Mapping[str, tuple[str, str]], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a secret that the properties set."""
    options = {name: get_first_property_value(dict(properties), *keys) for name, keys in names.items()}
    return {name: str(value) for name, value in options.items() if value}


def _region(bucket: str) -> dict[str, str]:
    """Return the region of a bucket of AWS, as pyiceberg finds it; nothing if AWS does not answer."""
    try:
        return {"REGION": resolve_s3_region(bucket)}
    except OSError:
        return {}


def load_extensions(connection: "duckdb.DuckDBPyConnection") -> None:
    """Load the extensions that read Iceberg's tables.

    Raises:
        LibraryMissing: one is not installed, or is for another version of DuckDB.
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


def name_views(connection: "duckdb.DuckDBPyConnection", tables: Sequence[str]) -> dict[str, list[Name]]:
    """Return the names of the views of each table: the lake's, the source's, and that in a schema.

    DuckDB ignores case, and has schemas of its own. A name that several tables would have, or that DuckDB
    would not find, is left out; the lake's names are distinct.

    Args:
        connection: the connection that gets the views.
        tables: names of all tables, as at the source.
    """
    databases = "SELECT database_name FROM duckdb_databases()"
    schemas = "SELECT schema_name FROM duckdb_schemas() WHERE internal"
    schema_names = {
        _key((name,)) for (name,) in connection.execute(f"{databases} UNION {schemas}").fetchall()
    }
    names = {table: _names(table, schema_names) for table in tables}
    counts = Counter(_key(name) for of_table in names.values() for name in of_table)
    return {
        table: [name for name in of_table if counts[_key(name)] == 1] for table, of_table in names.items()
    }


def _names(table: str, schema_names: Container[str]) -> list[Name]:
    schema, _, bare = table.partition(".")
    is_free = schema and bare and "." not in bare and _key((schema,)) not in schema_names
    return [*dict.fromkeys(((lake_table_name(table),), (table,))), *([(schema, bare)] if is_free else [])]


def _key(name: Name) -> str:
    """Return a key that all names of one view share: DuckDB ignores the case of ASCII letters alone."""
    return _quote(*name).translate(_LOWER)


def scan_sql(metadata_file: str, snapshot_id: int) -> str:
    """Return the query of all rows of a table's snapshot.

    Args:
        metadata_file: the table's metadata in the lake.
        snapshot_id: the snapshot.
    """
    place = _literal(metadata_file.removeprefix(_LOCAL))
    return f"SELECT * FROM iceberg_scan({place}, snapshot_from_id = {snapshot_id}::UBIGINT)"


def create_views(connection: "duckdb.DuckDBPyConnection", names: Iterable[Name], query: str) -> None:
    """Create views of the rows of a query.

    Args:
        connection: a connection that has the extensions.
        names: names of `name_views`.
        query: the query.
    """
    for name in names:
        for schema in name[:-1]:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quote(schema)}")
        connection.execute(f"CREATE OR REPLACE VIEW {_quote(*name)} AS {query}")


def register(connection: "duckdb.DuckDBPyConnection", names: Sequence[Name], rows: pa.Table) -> None:
    """Create views of rows in memory, which last as long as the connection."""
    connection.register(names[0][-1], rows)
    create_views(connection, names[1:], f"FROM temp.{_quote(*names[0])}")


def connect() -> "duckdb.DuckDBPyConnection":
    """Return a new database in memory.

    Raises:
        LibraryMissing: DuckDB is not installed.
    """
    connection: duckdb.DuckDBPyConnection = optional_library("duckdb", EXTRA).connect()
    return connection


def _quote(*parts: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
