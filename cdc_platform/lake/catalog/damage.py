"""Damage to the lake, and full disks, detected in errors of libraries; and what only looks like damage.

Missing files of pyiceberg (`lake/catalog/files.py`) and invalid rows (`model/base/stored_texts.py`) report
themselves.
"""

import logging
import re
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cdc_platform.errors import CommitConflict, DiskFull, LakeDamaged
from cdc_platform.lake.catalog.lake_settings import LakeSettings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

LOGGER: Final = logging.getLogger(__name__)
RESULTS_REMEDY: Final = (
    "Only the last check results are lost: the next check of a cycle, or `cdc-platform check`, stores new "
    "ones."
)
_MISSING: Final = re.compile(
    r"(?:java\.io\.FileNotFoundException: File|NotFoundException: (?:Location|File) does not exist:) "
    # Tables have their files in two folders; Spark's own files on disk are in others.
    r"(?P<file>\S+/(?:data|metadata)/\S+)"
)
# The catalog names metadata files: one that is missing has not expired. Hive's namespaces end in `.db`.
_OF_SNAPSHOT: Final = re.compile(
    r".*/(?P<namespace>[^/]+?)(?:\.db)?/(?P<table>[^/]+)/(?:metadata|data)/.+(?<!\.metadata\.json)"
)
_SCHEME: Final = re.compile(r"^\w+:/*")
_FULL: Final = re.compile(
    # Of a long line it shows the end, from a whole name on.
    r"(?:(?<![\w.])[^\n]{0,200})?(?:No space left on device|Disk quota exceeded|database or disk is full)",
    re.IGNORECASE,
)


def find_full(error: BaseException | None) -> DiskFull | None:
    """Return the full disk that an error or one of its causes reports; None for other errors."""
    while error is not None:
        match = _FULL.search(str(error))
        if match is not None:
            return DiskFull(match[0].strip(" :\t"))
        error = error.__cause__ or error.__context__
    return None


def find_damage(error: Exception) -> LakeDamaged | None:
    """Return the damage in a Java stack, a missing file of a table; None for other errors."""
    match = _MISSING.search(str(error))
    return LakeDamaged.missing(match["file"]) if match is not None else None


def find_expired(settings: LakeSettings, damage: LakeDamaged) -> CommitConflict | None:
    """Return a conflict if a missing file belongs to no version of its table any more; None for damage."""
    from cdc_platform.lake.catalog.catalogs import open_catalog
    from cdc_platform.lake.catalog.files import files_of

    file = _OF_SNAPSHOT.fullmatch(damage.missing_file or "")
    if file is None:
        return None
    try:
        table = open_catalog(settings).load_table((file["namespace"], file["table"]))
        current = {_path(location) for location in files_of(table.io, table.snapshots())}
    except Exception:  # noqa: BLE001  what cannot be read is damaged, too, and the first error names it
        return None
    if _path(file[0]) in current or not _path(file[0]).startswith(f"{_path(table.location())}/"):
        return None
    return CommitConflict(
        f"Another run has expired what this one was reading, file {file[0]}; the next cycle reads what is "
        "there now."
    )


def _path(location: str) -> str:
    """Return a location without its scheme: Java and Python write `file:` in two ways."""
    return _SCHEME.sub("/", location)


def list_own(catalog: "Catalog", namespace: str) -> frozenset[str]:
    """Return the names of the tables of a namespace, none if it does not exist."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    with suppress(NoSuchNamespaceError):
        return frozenset(identifier[-1] for identifier in catalog.list_tables(namespace))
    return frozenset()


def load_stored(catalog: "Catalog", identifier: str) -> "Table":
    """Return the current version of a table.

    Raises:
        NoSuchTableError: the table does not exist.
        LakeDamaged: the catalog has the table, but its metadata file is invalid or, at two looks, missing.
    """
    from pyiceberg.exceptions import ValidationError

    try:
        with suppress(LakeDamaged):  # another process may have replaced and then deleted the file
            return catalog.load_table(identifier)
        return catalog.load_table(identifier)
    except (FileNotFoundError, UnicodeDecodeError, ValidationError) as error:
        raise LakeDamaged(f"table `{identifier}`", " ".join(str(error).split())) from error


def require_own(catalog: "Catalog", namespace: str, names: Collection[str]) -> frozenset[str]:
    """Return the names of the platform's own tables that a lake has.

    Empty ones in place of lost ones would hide what is lost.

    Args:
        catalog: that of the lake.
        namespace: that of its own tables.
        names: the tables with which a lake begins, of which a new one may lack some.

    Raises:
        LakeDamaged: one of these is gone, and another one has a commit.
    """
    own = list_own(catalog, namespace)
    own_names = own.intersection(names)
    is_begun = (load_stored(catalog, f"{namespace}.{name}").metadata.snapshots for name in own_names)
    if len(own_names) < len(names) and any(is_begun):
        require_present(catalog, namespace, {*names} - own_names)
    return own


def require_present(catalog: "Catalog", namespace: str, names: Collection[str]) -> None:
    """Look again at own tables that were missing: another process may have created the lake meanwhile.

    Raises:
        LakeDamaged: one of them is still missing.
    """
    for name in sorted({*names} - list_own(catalog, namespace)) if names else ():
        raise LakeDamaged.dropped(f"{namespace}.{name}")


def drop_results(catalog: "Catalog", identifier: str, damage: LakeDamaged) -> None:
    """Drop the damaged table of the check results, which the next checks store again."""
    from pyiceberg.exceptions import NoSuchTableError

    LOGGER.warning("%s", damage.but(RESULTS_REMEDY))
    # Another process that opens the lake may have dropped it first.
    with suppress(NoSuchTableError):
        catalog.drop_table(identifier)
