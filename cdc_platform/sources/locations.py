"""Locations of files: the supported schemes, and their URIs for Arrow, which reads the files."""

import re
from typing import Final

from cdc_platform.errors import SettingError

DEADLINE_S: Final = 60.0
"""Seconds within which a store must give its first answer."""
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
"""Arrow's client first tries to get credentials, and each try may begin just before its limit."""


def scheme_of(location: str) -> str | None:
    """Return the scheme of a location, None for a folder."""
    scheme, separator, _ = location.partition(_SEPARATOR)
    return scheme if separator else None


def check_location(setting: str, location: str) -> None:
    """Check that the scheme of a location is supported; makes no request.

    Raises:
        SettingError: the scheme is not supported.
    """
    scheme = scheme_of(location)
    if scheme is not None and scheme not in _ARROW_SCHEMES:
        schemes = ", ".join(f"{name}{_SEPARATOR}" for name in _ARROW_SCHEMES)
        raise SettingError(
            setting,
            f"has the unsupported scheme `{scheme}`; write a folder, or one of {schemes}. For a store with "
            "the S3 API, write `s3://BUCKET/PREFIX?endpoint_override=HOST`; mount any other store as a "
            f"folder. It is: {location}",
        )


def arrow_location(location: str, deadline_s: float) -> str:
    """Return Arrow's URI for a location in an object store.

    Args:
        location: a location with a supported scheme.
        deadline_s: seconds after which Google's client gives up; its default is a quarter of an hour.
    """
    prefix, _, rest = location.partition(_SEPARATOR)
    scheme = _ARROW_SCHEMES[prefix]
    if scheme.startswith("abfs"):
        # With the host of blobs, Arrow reads the part before it as an account instead of a container.
        rest = _BLOB_HOST.sub(r"\1.dfs.", rest)
    if scheme == "gs" and _RETRY_LIMIT not in rest:
        limit_s = deadline_s / _LIMITS_WITHIN_DEADLINE
        rest = f"{rest}{'&' if '?' in rest else '?'}{_RETRY_LIMIT}={limit_s:g}"
    return f"{scheme}{_SEPARATOR}{rest}"
