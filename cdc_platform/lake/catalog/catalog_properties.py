"""Checks of a lake's catalog properties before any access."""

from collections.abc import Mapping
from typing import Final

from cdc_platform.errors import SettingError

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
