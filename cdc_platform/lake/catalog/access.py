"""Errors of an unreachable lake, in words of its settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cdc_platform.errors import (
    CdcError,
    LakeAccessDenied,
    LakeDamaged,
    LakeUnreachable,
    SettingError,
    SetupError,
)
from cdc_platform.lake.catalog.lake_settings import LakeSettings

_NO_BUCKET: Final = ("NO_SUCH_BUCKET", "NoSuchBucket", "bucket does not exist", "ContainerNotFound")
_DENIED: Final = (
    *("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID"),
    *("EXPIRED_TOKEN", "ExpiredToken", "PERMISSION_DENIED", "UNAUTHENTICATED", "AuthorizationFailure"),
    *("AuthenticationFailed", "HTTP status 401", "HTTP status 403"),
)
_SILENT: Final = ("NETWORK_CONNECTION", "REQUEST_TIMEOUT", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "UNAVAILABLE")
_WRONG_LOGIN: Final = ("password authentication failed", "no password supplied", "no pg_hba.conf entry")
_NO_CATALOG: Final = ("file is not a database", "is malformed")
_NO_DATABASE: Final = ("does not exist",)


@contextmanager
def reaching(settings: LakeSettings) -> Iterator[None]:
    """Raise what the catalog or the object store answers as an error that names the setting to look at.

    Raises:
        SettingError: the bucket, the database or the kind of catalog does not exist.
        SetupError: the driver of the catalog's database is not installed.
        LakeDamaged: the catalog's file is none.
        LakeAccessDenied: the credentials may not use the catalog or the object store.
        LakeUnreachable: one of them does not answer.
    """
    try:
        yield
    except CdcError:
        raise
    except Exception as error:
        explained = _explain(settings, error)
        if explained is None:
            raise
        raise explained from error


def _explain(settings: LakeSettings, error: Exception) -> CdcError | None:
    """Return an error of ours for one of a library's, None for what has nothing to do with access."""
    from pyiceberg import exceptions as iceberg
    from sqlalchemy.exc import DBAPIError

    if isinstance(error, ModuleNotFoundError):
        return SetupError(
            f"A library of the lake's catalog is not installed ({error}); it belongs to the setting "
            "`lake.catalog`. For PostgreSQL: pip install 'cdc_platform[postgres]'; for Hive or Glue: "
            "pip install 'pyiceberg[hive]' or 'pyiceberg[glue]'"
        )
    if isinstance(error, DBAPIError):
        file, text = settings.catalog_file, str(error.orig).strip()
        return _explain_database(text) if file is None else _explain_file(file, text)
    if isinstance(error, iceberg.UnauthorizedError | iceberg.ForbiddenError | iceberg.OAuthError):
        return LakeAccessDenied(
            "The lake's catalog refuses us; look at `credential` or `token` in the setting `lake.catalog`: "
            f"{error}"
        )
    # The client of REST catalogs lets through what its HTTP library raises, which is an OSError, too.
    if isinstance(error, iceberg.ServiceUnavailableError) or type(error).__module__.startswith("requests."):
        return LakeUnreachable(
            f"The lake's catalog does not answer; look at the setting `lake.catalog.uri`: {error}"
        )
    return _explain_store(settings, str(error)) if isinstance(error, OSError) else None


def _explain_file(file: Path, text: str) -> CdcError | None:
    if any(sign in text for sign in _NO_CATALOG):
        return LakeDamaged(f"its catalog {file}", text)
    return None


def _explain_database(text: str) -> CdcError:
    if any(sign in text for sign in _WRONG_LOGIN):
        return LakeAccessDenied(
            "The lake's catalog refuses the login; look at `user` and `password` in the setting "
            f"`lake.catalog`, or at those in its `uri`: {text}"
        )
    if any(sign in text for sign in _NO_DATABASE):
        return SettingError("lake.catalog.uri", f"names what the server does not have: {text}")
    return LakeUnreachable(
        f"The lake's catalog does not answer; look at the setting `lake.catalog.uri`: {text}"
    )


def _explain_store(settings: LakeSettings, text: str) -> CdcError | None:
    if settings.store is None:
        return None
    if any(sign in text for sign in _NO_BUCKET):
        return SettingError("lake.path", f"is in a bucket that does not exist, {settings.warehouse}: {text}")
    if any(sign in text for sign in _DENIED):
        names = ", ".join(f"`{name}`" for name in settings.store.credentials)
        return LakeAccessDenied(
            f"The object store refuses us at {settings.warehouse}; look at {names} in the setting "
            f"`lake.catalog`, or at the credentials of this machine where they are not set: {text}"
        )
    if any(sign in text for sign in _SILENT):
        return LakeUnreachable(
            f"The object store does not answer for {settings.warehouse}; look at the setting `lake.path`, "
            f"and at `s3.endpoint` or its like in `lake.catalog`: {text}"
        )
    return None
