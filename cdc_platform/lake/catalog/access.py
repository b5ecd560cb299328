"""Translation of errors of an unreachable lake, in terms of its settings."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os.path import normpath
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

from cdc_platform.errors import (
    CdcError,
    ClockBehind,
    CommitConflict,
    LakeAccessDenied,
    LakeDamaged,
    LakeUnreachable,
    SettingError,
    SetupError,
)
from cdc_platform.lake.catalog.damage import find_damage, find_expired, find_full
from cdc_platform.lake.catalog.lake_settings import LakeSettings, local_folder
from cdc_platform.lake.catalog.store_failures import cause_in, explain_store
from cdc_platform.model.base.stored_names import CHECK_RESULTS

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

_WRONG_LOGIN: Final = re.compile(
    "password authentication failed|no password supplied|no pg_hba.conf entry|permission denied for"
)
_NO_CATALOG: Final = re.compile("file is not a database|is malformed")
_NO_DATABASE: Final = re.compile("does not exist")
_LOCKED: Final = re.compile("database (?:table )?is locked|SQLITE_BUSY|SQLITE_LOCKED")
_READ_ONLY: Final = re.compile(
    "readonly database|unable to open database file|SQLITE_READONLY|SQLITE_CANTOPEN"
)
_UNWRITABLE: Final = re.compile(
    "Read-only file system|Permission denied|Operation not permitted|access denied"
)
_BROKEN: Final = re.compile(
    "disk I/O error|Input/output error|Remote I/O error|Stale file handle|Transport endpoint is not connected"
)
"""Errors of a disk or a mounted folder that does not answer."""
_LOADERS: Final = ("pyiceberg.", "sqlalchemy.", "cdc_platform.lake.catalog.catalogs")
"""Prefixes of modules that load the drivers of catalogs."""
_BEHIND: Final = re.compile("Invalid update timestamp|Expected sorted|Invalid snapshot timestamp")
_UNWRITTEN: Final = re.compile("Cannot get file info, file not found")
"""Error of pyiceberg, which requests the size of each file that it has written."""
_REPLACED: Final = "SQLITE_READONLY_DBMOVED"
CONFLICT: Final = re.compile(
    "CommitFailedException"
    # Iceberg's ValidationException reports much else, too, such as of a name that no column can have.
    "|Found (?:new )?conflicting |Found concurrently added |Cannot commit, "
    # A branch that another process has removed.
    r"|branch \(does not exist\)"
    # A snapshot that another process has expired.
    "|Cannot find snapshot with ID|to unknown snapshot"
    "|Cannot determine history between |Missing required files to delete|not an ancestor of "
    # A table that another process has dropped. No process drops the platform's own ones.
    r"|TABLE_OR_VIEW_NOT_FOUND\](?!.*__cdc)|NoSuchTableException(?!.*__cdc)"
)
"""Iceberg's messages where another commit was first."""
_OWN_TABLE: Final = re.compile(r"(\w+__cdc)\W+(\w+)")
_CATALOG_SILENT: Final = re.compile(
    r"exceptions\.(?:CommitStateUnknown|ServiceFailure|ServiceUnavailable|REST)Exception"
    r"|UncheckedSQLException|PSQLException"
)
"""Errors of Iceberg's Java side for a catalog that did not answer, or whose commit state is unknown."""


@contextmanager
def reaching(settings: LakeSettings) -> Iterator[None]:
    """Translate errors of the catalog or the storage into errors that show whether a retry helps.

    Raises:
        SettingError: the bucket, the database or the kind of catalog does not exist.
        SetupError: the driver of the catalog's database is not installed.
        LakeDamaged: the catalog's file is not a database, or a file of a table is missing.
        LakeAccessDenied: the credentials do not allow access to the catalog or the object store, or the lake
            is not writable.
        LakeUnreachable: the catalog or the storage does not answer, or the state of a commit is unknown.
        ClockBehind: this machine's clock is behind the newest commit.
        CommitConflict: another run has committed first, or has expired what this one was reading.
        DiskFull: there is no space left.
    """
    try:
        yield
    except Exception as error:
        lake_error = error if isinstance(error, CdcError) else _explain(settings, error)
        if isinstance(lake_error, LakeDamaged):
            lake_error = find_expired(settings, lake_error) or lake_error
        if lake_error is None or lake_error is error:
            raise
        raise lake_error from error


def _explain(settings: LakeSettings, error: Exception) -> CdcError | None:
    """Return the platform's error for a library's; None if it is unrelated to the lake."""
    from sqlalchemy.exc import DBAPIError

    disk_error = find_full(error)
    if disk_error is not None:
        return disk_error
    if isinstance(error, ModuleNotFoundError) and _is_raised_in(error, _LOADERS):
        return SetupError(
            f"A library of the lake's catalog is not installed ({error}); it belongs to the setting "
            "`lake.catalog`. For PostgreSQL: pip install 'cdc_platform[postgres]'; for Hive or Glue: "
            "pip install 'pyiceberg[hive]' or 'pyiceberg[glue]'"
        )
    if isinstance(error, DBAPIError):
        return _explain_database(settings, error)
    library = type(error).__module__.partition(".")[0]
    if library in {"pyspark", "py4j"}:
        return _explain_spark(settings, error)
    if library in {"pyiceberg", "requests", "urllib3"}:
        return _explain_service(settings, error)
    return _explain_text(settings, str(error)) if isinstance(error, OSError) else None


def _explain_service(settings: LakeSettings, error: Exception) -> CdcError | None:
    """Explain an error of a catalog's client."""
    from pyiceberg import exceptions as iceberg

    own = _OWN_TABLE.search(str(error)) if isinstance(error, iceberg.NoSuchTableError) else None
    if own is not None and own[2] != CHECK_RESULTS:
        return LakeDamaged.dropped(".".join(own.groups()))
    if isinstance(error, iceberg.NoSuchTableError | iceberg.CommitFailedException):
        return _outrun(str(error))
    if isinstance(error, iceberg.UnauthorizedError | iceberg.ForbiddenError | iceberg.OAuthError):
        return LakeAccessDenied(
            "The lake's catalog denies access; check `credential` or `token` in the setting `lake.catalog`: "
            f"{error}"
        )
    if _BEHIND.search(str(error)):
        return ClockBehind(str(error))
    # The REST client raises exceptions of its HTTP library unchanged.
    silent = iceberg.ServerError | iceberg.ServiceUnavailableError | iceberg.TooManyRequestsError
    is_library_of_http = not isinstance(error, iceberg.RESTError) and isinstance(error, OSError)
    if is_library_of_http or isinstance(error, silent | iceberg.CommitStateUnknownException):
        return _silent_catalog(str(error))
    return _explain_text(settings, str(error)) if isinstance(error, OSError) else None


def _explain_spark(settings: LakeSettings, error: Exception) -> CdcError | None:
    """Explain the stack of a Java error."""
    damage, text = find_damage(error), str(error)
    if damage is not None:
        return damage
    explanations: Mapping[re.Pattern[str], Callable[[str], CdcError]] = {
        _BEHIND: ClockBehind,
        _LOCKED: _silent_catalog,
        _BROKEN: partial(_disk_failure, settings),
        _READ_ONLY: partial(_read_only, settings),
        _WRONG_LOGIN: _refused_login,
        CONFLICT: _outrun,
        _CATALOG_SILENT: _silent_catalog,
    }
    for sign, explain in explanations.items():
        if sign.search(text):
            return explain(cause_in(text, sign))
    return _explain_text(settings, text)


def _explain_database(settings: LakeSettings, error: "DBAPIError") -> CdcError | None:
    text = str(error.orig).strip()
    if _WRONG_LOGIN.search(text):
        return _refused_login(text)
    file = settings.catalog_file
    return _explain_server(error, text) if file is None else _explain_file(settings, file, error, text)


def _explain_server(error: "DBAPIError", text: str) -> CdcError | None:
    from sqlalchemy.exc import InterfaceError, OperationalError

    if _NO_DATABASE.search(text):
        return SettingError("lake.catalog.uri", f"names something that does not exist on the server: {text}")
    is_lost = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
    return _silent_catalog(text) if is_lost else None


def _explain_file(settings: LakeSettings, file: Path, error: "DBAPIError", text: str) -> CdcError | None:
    if getattr(error.orig, "sqlite_errorname", "") == _REPLACED:
        reason = "it was deleted or replaced while this process used it; a new start uses the current file"
        return LakeDamaged(f"its catalog {file}", reason)
    if _NO_CATALOG.search(text):
        return LakeDamaged(f"its catalog {file}", text)
    if _READ_ONLY.search(text):
        return _read_only(settings, f"{file}: {text}")
    if _BROKEN.search(text):
        return _disk_failure(settings, f"{file}: {text}")
    return _silent_catalog(text) if _LOCKED.search(text) else None


def _is_raised_in(error: Exception, modules: tuple[str, ...]) -> bool:
    """Return whether code of one of these modules is in the traceback of an error."""
    names = (str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__))
    return any(name.startswith(modules) for name in names)


def _explain_text(settings: LakeSettings, text: str) -> CdcError | None:
    """Explain an error of files, also of Python in Spark's tasks."""
    if _UNWRITTEN.search(text):
        reason = cause_in(text, _UNWRITTEN)
        return LakeUnreachable(f"The storage does not have a file that was just written to it: {reason}")
    if settings.store is None:
        return _explain_folder(settings, text)
    return explain_store(settings, settings.store, text)


def _explain_folder(settings: LakeSettings, text: str) -> CdcError | None:
    """Explain an error of the file system for a file in the lake's folder."""
    # pyarrow does not name the file that it was writing.
    if _BROKEN.search(text):
        return _disk_failure(settings, cause_in(text, _BROKEN))
    folder = local_folder(settings.path)
    # Java removes parent references, as in `defs/../lake`.
    forms = {str(folder), normpath(str(folder))}
    if folder is None or not re.search(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, forms))})(?![\w.-])", text):
        return None
    return _read_only(settings, cause_in(text, _UNWRITABLE)) if _UNWRITABLE.search(text) else None


def _refused_login(text: str) -> LakeAccessDenied:
    return LakeAccessDenied(
        "The lake's catalog rejects the login; check `user` and `password` in the setting "
        f"`lake.catalog`, or those in its `uri`: {text}"
    )


def _silent_catalog(text: str) -> LakeUnreachable:
    return LakeUnreachable(
        "The lake's catalog does not answer, or does not report whether it has made a commit: the next cycle "
        f"resumes from the current state. Check the setting `lake.catalog.uri`: {text}"
    )


def _read_only(settings: LakeSettings, text: str) -> LakeAccessDenied:
    return LakeAccessDenied(
        f"The lake at {settings.shown_path} is not writable; give this user write permission, "
        f"or mount it for writing: {text}"
    )


def _disk_failure(settings: LakeSettings, text: str) -> LakeUnreachable:
    return LakeUnreachable(
        f"A disk does not answer, that of the lake at {settings.shown_path} or the one named below: "
        "check the disk, or the mounted folder. Commits are kept, and the next cycle resumes from them: "
        f"{text}"
    )


def _outrun(text: str) -> CommitConflict:
    return CommitConflict(f"Another run committed first; the next cycle resumes from its commit. {text}")
