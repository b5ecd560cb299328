"""Object stores that hold a lake, and what Iceberg's Java side needs to reach them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from cdc_platform.errors import SettingError


@dataclass(frozen=True)
class ObjectStore:
    """A kind of object store.

    pyiceberg reaches all of them through pyarrow, which has its clients built in.

    Args:
        file_io: Iceberg's class for it.
        bundle: artifact of `org.apache.iceberg` that holds this class's client libraries.
        credentials: the catalog properties that both sides take credentials from.
    """

    file_io: str
    bundle: str
    credentials: tuple[str, ...]


_S3: Final = ObjectStore(
    "org.apache.iceberg.aws.s3.S3FileIO",
    "iceberg-aws-bundle",
    ("s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
)
_GCS: Final = ObjectStore("org.apache.iceberg.gcp.gcs.GCSFileIO", "iceberg-gcp-bundle", ("gcs.oauth2.token",))
_ADLS: Final = ObjectStore(
    "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    "iceberg-azure-bundle",
    ("adls.account-name", "adls.account-key"),
)

_STORES: Final = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _S3),
    "gs": _GCS,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _ADLS),
}

_FILE_SYSTEMS: Final = ("file", "hdfs", "viewfs")


def find_store(location: str) -> ObjectStore | None:
    """Return the kind of object store that a URI names, None for a folder or one that is not known."""
    return _STORES.get(urlsplit(location).scheme)


def check_scheme(setting: str, location: str) -> None:
    """Check that both Iceberg's Java side and pyiceberg write where a location is.

    Args:
        setting: for the error.
        location: a folder, a URI, or a name that a catalog gives to its warehouse.

    Raises:
        SettingError: its scheme is none that they have in common.
    """
    scheme, separator, _ = location.partition("://")
    if separator and scheme not in {*_STORES, *_FILE_SYSTEMS}:
        schemes = ", ".join(f"{name}://" for name in (*_STORES, *_FILE_SYSTEMS))
        raise SettingError(setting, f"must be a folder, or begin with one of {schemes}, but is: {location}")


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a catalog's properties under the names that Iceberg's Java side gives to the same things."""
    java = dict(properties)
    region = java.pop("s3.region", None)
    if region is not None:
        java.setdefault("client.region", region)
    if "s3.endpoint" in java and java.get("s3.force-virtual-addressing", "").lower() != "true":
        # As pyarrow does: a server of one's own rarely has a name for each bucket.
        java.setdefault("s3.path-style-access", "true")
    if {"adls.account-name", "adls.account-key"} <= java.keys():
        java.setdefault("adls.auth.shared-key.account.name", java["adls.account-name"])
        java.setdefault("adls.auth.shared-key.account.key", java["adls.account-key"])
    return java
