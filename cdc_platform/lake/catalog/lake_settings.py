"""Settings of a lake: its location, and one block for its catalog, shared by Spark and pyiceberg."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.object_store import ObjectStore, check_scheme, find_store, java_properties
from cdc_platform.model.base.declared_settings import Described
from cdc_platform.redaction import HIDING_ADDRESSES, HIDING_NAMES

KINDS: Final = ("sql", "rest", "hive", "glue")
"""Catalog types that both Spark and pyiceberg support, and in which pyiceberg can write version 3."""

_URI_SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {"rest": ("https://", "http://"), "hive": ("thrift://",)}
"""Schemes of the address of a catalog type; the translation of properties checks that of a sql catalog."""
_SERVERS: Final = ("s3.endpoint", "glue.endpoint", "gcs.service.host")
"""Addresses of object stores and of Glue. Libraries misinterpret a bare HOST:PORT."""
_KEYS: Final = ("s3.access-key-id", "s3.secret-access-key")


def check_catalog(catalog: Mapping[str, str]) -> None:
    """Check the type of a catalog, its addresses, and that logins are complete.

    Args:
        catalog: its properties for pyiceberg.

    Raises:
        SettingError: a property is invalid. The error omits addresses, since they may contain a password.
    """
    kind = catalog.get("type", "")
    if kind not in KINDS:
        problem = f"must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, but is: {kind!r}"
        raise SettingError("lake.catalog.type", problem)
    schemes = _URI_SCHEMES.get(kind)
    if schemes is not None and not catalog.get("uri", "").startswith(schemes):
        problem = f"of a {kind} catalog must begin with {' or '.join(schemes)}, such as {schemes[0]}HOST:PORT"
        raise SettingError("lake.catalog.uri", problem)
    for name in _SERVERS:
        if name in catalog and not catalog[name].startswith(("http://", "https://")):
            raise SettingError(
                f"lake.catalog.{name}", "must begin with http:// or https://, such as http://HOST:PORT"
            )
    for name, other in (_KEYS, _KEYS[::-1]):
        if name not in catalog and other in catalog:
            raise SettingError(
                f"lake.catalog.{name}", f"is missing, but `{other}` is set: set both or neither"
            )


CATALOG: Final = "lake"
"""Name of the catalog, in Spark and in pyiceberg."""

TABLE_FORMATS: Final = (2, 3)
"""Iceberg's format versions with row-level deletes, which merges need."""

BUSY_TIMEOUT_S: Final = 60
"""Timeout of a writer for the SQLite catalog, so that a locked catalog only delays it."""

LOGGED_FILES: Final = 100
"""Number of earlier files listed in a metadata file. With 3,600, an hour at a commit per second, it would be
ten times as large, and a commit of pyiceberg eight times as slow: it copies the log some twenty times."""

KEPT_BY_TIME: Final[Mapping[str, str]] = {
    # Iceberg ignores the age: it would delete a file as soon as the log no longer lists it.
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": str(LOGGED_FILES),
}
"""Properties of a table whose old metadata files maintenance deletes."""

COMPARE_AND_SET: Final = {"commit.retry.num-retries": "0"}
"""Property of a table for which a commit that is based on outdated data must fail."""
FORMAT_PROPERTY: Final = "cdc.format-version"
"""Property of the platform's own tables, and of no others."""

MEANT_OTHERWISE: Final = frozenset("?#%")
"""Characters that addresses of catalogs and tables do not support in the name of a folder."""

_HARMLESS: Final = (
    "type|uri|warehouse|prefix|(?:io|catalog)-impl|(?:io[.]manifest[.])?cache-enabled"
    "|jdbc[.](?:user|schema-version)|(?:client|s3)[.]region|s3[.](?:endpoint|path-style-access)|gcs[.](?:project-id|service[.]host)"
    "|adls[.]account-name|glue[.](?:id|region|endpoint)"
    "|header[.]X-Iceberg-Access-Delegation|rest-table-cache[.]expire-after-write-ms"
)
"""Properties of a catalog without secrets, unless one is in their address."""
HIDDEN_NAMES: Final = (
    f"(?i){HIDING_NAMES}|{HIDING_ADDRESSES}|^spark[.]sql[.]catalog[.]{CATALOG}[.](?!(?:{_HARMLESS})$)"
)
"""Regular expression, for Python and Java, of the names of properties with secret values.

Spark also searches values for it, which finds an address with a secret.
"""

_LOGIN: Final = ("user", "password")
_POSTGRESQL: Final = ("postgresql", "postgresql+psycopg2", "postgresql+psycopg")
"""Schemes of SQLAlchemy drivers with the same calling convention."""


@dataclass(frozen=True)
class LakeSettings:
    """A lake: a folder or object store prefix, and the catalog of its tables."""

    path: Annotated[
        str,
        Described("Folder, relative to that of this file, or object store prefix of the lake.", is_path=True),
    ]
    # Without a representation, because it holds credentials and settings may appear in a traceback.
    catalog: Annotated[
        Mapping[str, str],
        Described(
            "Properties of the Iceberg catalog and the object store as pyiceberg names them, and `user` and "
            "`password` of a sql catalog; empty means the SQLite file `catalog.db` in the lake's folder."
        ),
    ] = field(default_factory=dict, repr=False)
    table_format_version: Annotated[
        int,
        Described(
            "Iceberg format version of new merged tables: 3, with deletion vectors, or 2, for engines that "
            "cannot read them."
        ),
    ] = 3

    def __post_init__(self) -> None:
        if self.table_format_version not in TABLE_FORMATS:
            problem = f"must be 2 or 3, but is: {self.table_format_version}"
            raise SettingError("lake.table_format_version", problem)
        check_scheme("lake.path", self.path)
        if self.catalog:
            check_catalog(self.catalog)
            check_scheme("lake.catalog.warehouse", self.catalog.get("warehouse", ""))
        # Each one rejects properties that it cannot translate.
        self.pyiceberg_properties()
        self.spark_properties()

    @property
    def shown_path(self) -> str:
        """The path for people: a folder without the `..` from a relative path in a settings file."""
        return self.path if "://" in self.path else normpath(self.path)

    @property
    def warehouse(self) -> str:
        """URI prefix of the tables' folders."""
        return self.catalog.get("warehouse") or _as_uri(self.path)

    def pyiceberg_properties(self) -> dict[str, str]:
        """Return the catalog's properties for `pyiceberg.catalog.load_catalog`."""
        if not self.catalog:
            uri = f"sqlite:///{_local(self.path) / 'catalog.db'}?timeout={BUSY_TIMEOUT_S}"
            return {"type": "sql", "uri": uri, "warehouse": self.warehouse}
        properties = {**self.catalog, "warehouse": self.warehouse}
        if self.catalog.get("type") == "sql":
            properties["uri"] = _with_login(self.catalog)
            for name in _LOGIN:
                properties.pop(name, None)
        return properties

    @property
    def store(self) -> ObjectStore | None:
        """The kind of object store with the data; None for a folder."""
        return find_store(self.warehouse) or find_store(self.path)

    @property
    def has_vended_credentials(self) -> bool:
        """Whether the catalog may vend credentials for the object store: the settings have none."""
        names = self.store.credentials if self.store is not None else ()
        return self.catalog.get("type") == "rest" and not self.catalog.keys() & {*names}

    @property
    def catalog_file(self) -> Path | None:
        """The file of a SQLite catalog; None for other catalogs."""
        scheme, _, path = self.pyiceberg_properties().get("uri", "").partition(":///")
        return Path(path.partition("?")[0]) if scheme == "sqlite" else None

    def spark_properties(self) -> dict[str, str]:
        """Return the same catalog's settings for Spark, without the prefix `spark.sql.catalog.lake.`."""
        if not self.catalog:
            uri = f"jdbc:sqlite:{_local(self.path) / 'catalog.db'}?busy_timeout={BUSY_TIMEOUT_S * 1000}"
            return _jdbc(uri, self.warehouse)
        properties = java_properties(_translate(self.catalog, self.warehouse))
        if self.store is not None:
            # Manifests never change, and each is read several times in a cycle.
            properties.setdefault("io.manifest.cache-enabled", "true")
        # The file IO of a REST catalog follows the location itself, as the service may require another one.
        if self.store is not None and properties["type"] != "rest":
            properties.setdefault("io-impl", self.store.file_io)
        if self.has_vended_credentials:
            # As pyiceberg does.
            properties.setdefault("header.X-Iceberg-Access-Delegation", "vended-credentials")
            # Otherwise Iceberg keeps the credentials of an unchanged table for minutes after they expire.
            properties.setdefault("rest-table-cache.expire-after-write-ms", "1")
        return properties


def is_secret(name: str, value: str = "") -> bool:
    """Return whether the value of a catalog's property may be secret, that is, not known to be harmless."""
    is_harmless = re.fullmatch(_HARMLESS, name) is not None
    return not is_harmless or holds_secret(name, value)


def holds_secret(name: str, value: str) -> bool:
    """Return whether a property's name, or an address in its value, indicates a secret."""
    match = re.search(HIDDEN_NAMES, name) or re.search(HIDING_ADDRESSES, value, re.IGNORECASE)
    return match is not None


def _with_login(catalog: Mapping[str, str]) -> str:
    """Return the address of a sql catalog including user and password, for pyiceberg."""
    uri = catalog.get("uri", "")
    user, password = (catalog.get(name) for name in _LOGIN)
    if user is None and password is None:
        return uri
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        raise SettingError(
            "lake.catalog.uri", "already contains a user; remove it, or the settings `user` and `password`"
        )
    login = ":".join(quote(value, safe="") for value in (user or "", password) if value is not None)
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def _translate(catalog: Mapping[str, str], warehouse: str) -> dict[str, str]:
    kind, uri = catalog["type"], catalog.get("uri", "")
    further = {key: value for key, value in catalog.items() if key not in {"type", "uri", "warehouse"}}
    if kind == "sql":
        further = {key: value for key, value in further.items() if key not in _LOGIN}
        return _jdbc_of_sqlalchemy(_with_login(catalog), warehouse) | further
    return {"type": kind, "warehouse": warehouse, **({"uri": uri} if uri else {}), **further}


def _jdbc_of_sqlalchemy(uri: str, warehouse: str) -> dict[str, str]:
    """Translate pyiceberg's SQLAlchemy address into Spark's JDBC address."""
    if uri.startswith("sqlite:///"):
        path = uri.removeprefix("sqlite:///").split("?")[0]
        if not path.removeprefix("file:").startswith("/"):
            problem = "of a SQLite file must be absolute, as in sqlite:////PATH with four slashes, but is"
            raise SettingError("lake.catalog.uri", f"{problem}: {uri}")
        return _jdbc(f"jdbc:sqlite:{path}?busy_timeout={BUSY_TIMEOUT_S * 1000}", warehouse)
    parts = urlsplit(uri)
    if parts.scheme not in _POSTGRESQL or not parts.hostname or not _has_port(parts):
        raise SettingError(
            "lake.catalog.uri",
            "of a sql catalog must be sqlite:////PATH or "
            "postgresql+psycopg2://USER:PASSWORD@HOST:PORT/DATABASE;"
            " write a password with special characters to `lake.catalog.password`",
        )
    properties = _jdbc(f"jdbc:postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}", warehouse)
    login = {"jdbc.user": parts.username, "jdbc.password": parts.password}
    return properties | {key: unquote(value) for key, value in login.items() if value}


def _has_port(parts: SplitResult) -> bool:
    """Return whether the port is absent or a number; the rest of a password with a slash is neither."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _jdbc(uri: str, warehouse: str) -> dict[str, str]:
    # Without V1, Spark and pyiceberg use different columns in the catalog.
    return {"type": "jdbc", "uri": uri, "warehouse": warehouse, "jdbc.schema-version": "V1"}


def _as_uri(path: str) -> str:
    # Not encoded: Spark and pyiceberg use the text after the scheme literally as the folder's name.
    return path if "://" in path else f"file://{_local(path)}"


def _local(path: str) -> Path:
    if "://" in path and not path.startswith("file://"):
        raise SettingError("lake.catalog", f"is required if the lake is not a local folder: {path}")
    folder = Path(path.removeprefix("file://")).expanduser().absolute()
    strange = sorted(MEANT_OTHERWISE & set(str(folder)))
    if strange:
        raise SettingError(
            "lake.path",
            f"has characters with a special meaning in an address ({' '.join(strange)}); "
            f"choose another folder: {folder}",
        )
    return folder


def local_folder(path: str) -> Path | None:
    """Return the lake's folder if it is on this machine, else None."""
    return None if "://" in path and not path.startswith("file://") else _local(path)
