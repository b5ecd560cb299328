"""Locations of files: the schemes that are read, and their spelling for Arrow, which reads them."""

import re
from typing import Final

from cdc_platform.errors import SettingError

DEADLINE_S: Final = 60.0
"""Within so many seconds a store has to give its first answer."""
_SEPARATOR: Final = "://"
_ARROW_SCHEMES: Final = {
    "file": "file",
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "wasb"), "abfs"),
    **dict.fromkeys(("abfss", "wasbs"), "abfss"),
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
_BLOB_HOST: Final = re.compile(r"^([^/@]+@[^/@]+)\.blob\.")
_RETRY_LIMIT: Final = "retry_limit_seconds"
_LIMITS_WITHIN_DEADLINE: Final = 3
"""Arrow's client tries for credentials first, and each try may begin just before its limit."""


def scheme_of(location: str) -> str | None:
    """Return the scheme of a location, None for a folder."""
    scheme, separator, _ = location.partition(_SEPARATOR)
    return scheme if separator else None


def check_location(setting: str, location: str) -> None:
    """Check that files can be read there, as far as the location tells; asks nobody.

    Raises:
        SettingError: nothing reads its scheme.
    """
    scheme = scheme_of(location)
    if scheme is not None and scheme not in _ARROW_SCHEMES:
        schemes = ", ".join(f"{name}{_SEPARATOR}" for name in _ARROW_SCHEMES)
        raise SettingError(
            setting,
            f"has the scheme `{scheme}`, which cannot be read; write a folder, or one of {schemes}. A store "
            "that speaks S3 is `s3://BUCKET/PREFIX?endpoint_override=HOST`, any other one can be mounted as "
            f"a folder. It is: {location}",
        )


def arrow_location(location: str, deadline_s: float) -> str:
    """Return the URI by which Arrow knows a place of an object store.

    Args:
        location: with a scheme that can be read.
        deadline_s: Google's client, which tries again for a quarter of an hour else, gives up before it.
    """
    prefix, _, rest = location.partition(_SEPARATOR)
    scheme = _ARROW_SCHEMES[prefix]
    if scheme.startswith("abfs"):
        # Under the host of blobs Arrow takes what stands before it for an account, and not for a container.
        rest = _BLOB_HOST.sub(r"\1.dfs.", rest)
    if scheme == "gs" and _RETRY_LIMIT not in rest:
        limit_s = deadline_s / _LIMITS_WITHIN_DEADLINE
        rest = f"{rest}{'&' if '?' in rest else '?'}{_RETRY_LIMIT}={limit_s:g}"
    return f"{scheme}{_SEPARATOR}{rest}"
