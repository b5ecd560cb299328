"""Access to files with temporary credentials, which a REST catalog vends with each table."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pyarrow.fs import FileSystem
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier, Properties

from cdc_platform.lake.catalog.files import LakeFiles
from cdc_platform.lake.catalog.lake_settings import CATALOG
from cdc_platform.lake.catalog.object_store import find_store

MAX_AGE_S: Final = 300.0
"""Maximum age of credentials whose expiry is not stated. No store issues them for less than 15 minutes."""
PAUSE_S: Final = 10.0
"""Pause between two attempts to renew credentials."""
TIMEOUT_S: Final = 10.0
"""Maximum time without an answer of the catalog to such an attempt."""
_EXPIRIES: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at")
"""Properties of a table with the time at which its credentials expire, in milliseconds since 1970."""

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

_FileSystems = Callable[[str, str | None], FileSystem]


class VendedFiles(LakeFiles):
    """Opens files of a table, and requests other credentials after half of their life, or `MAX_AGE_S`.

    It can be pickled for Spark's tasks, which request them from the catalog, too.
    """

    def __init__(self, properties: Properties, settings: Mapping[str, str], table: Identifier) -> None:
        self._settings, self._table = settings, table
        self._lock, self._due_s = Lock(), _due_s(properties)
        super().__init__(properties)

    @property
    def fs_by_scheme(self) -> _FileSystems:
        """File systems by scheme and bucket, with the present credentials."""
        # Until the former ones expire, they serve as well, for other threads and if the catalog fails; then
        # the store refuses them.
        if time.time() >= self._due_s and self._lock.acquire(blocking=False):
            try:
                self._due_s = time.time() + PAUSE_S
                with suppress(Exception):
                    self._renew()
            finally:
                self._lock.release()
        return self._systems

    @fs_by_scheme.setter
    def fs_by_scheme(self, systems: _FileSystems) -> None:
        self._systems = systems

    def _renew(self) -> None:
        with _impatient_catalog()(CATALOG, **self._settings) as catalog:
            table = catalog.load_table(self._table)
        self.properties, self._due_s = table.io.properties, _due_s(table.io.properties)
        self._systems = lru_cache(self._initialize_fs)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: no connections."""
        return {name: part for name, part in vars(self).items() if name not in {"_lock", "_systems"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was pickled."""
        super().__setstate__({**state, "_lock": Lock()})


def keep_credentials_fresh(table: Table, settings: Mapping[str, str]) -> Table:
    """Return a table that renews the credentials of its files if its catalog vends them.

    Args:
        table: the table as the catalog has loaded it.
        settings: properties of its REST catalog, by pyiceberg's names.
    """
    properties, store = table.io.properties, find_store(table.location())
    names = store.credentials if store is not None else ()
    if any(properties.get(name) != settings.get(name) for name in names):
        table.io = VendedFiles(properties, settings, table.name())
    return table


@cache
def _impatient_catalog() -> "type[RestCatalog]":
    """Return a REST catalog whose requests end after a time: pyiceberg's wait for ever."""
    from pyiceberg.catalog.rest import RestCatalog
    from requests import PreparedRequest, Response, Session
    from requests.adapters import HTTPAdapter

    class Impatient(HTTPAdapter):
        def send(self, request: PreparedRequest, **options: Any) -> Response:  # type: ignore[override]
            return super().send(request, **options | {"timeout": TIMEOUT_S})

    class ImpatientCatalog(RestCatalog):
        def _create_session(self) -> Session:
            session = super()._create_session()
            for scheme in ("https://", "http://"):
                session.mount(scheme, Impatient())
            return session

    return ImpatientCatalog


def _due_s(properties: Properties) -> float:
    """Return when credentials that were just vended are to be renewed, in seconds since 1970."""
    now_s = time.time()
    texts = (str(properties.get(name, "")) for name in _EXPIRIES)
    lives = (int(text) / 1000 - now_s for text in texts if text.isdecimal())
    return now_s + min((life / 2 for life in lives), default=MAX_AGE_S)
