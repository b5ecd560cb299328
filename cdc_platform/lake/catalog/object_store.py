"""Object stores for lakes, and the properties that Iceberg's Java side needs for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from cdc_platform.errors import SettingError


@dataclass(frozen=True)
class ObjectStore:
    """A kind of object store.

    pyiceberg accesses all of them through pyarrow's built-in clients.

    Args:
        file_io: Iceberg's class for it.
        bundle: artifact of `org.apache.iceberg` with the client libraries of this class.
        credentials: the catalog properties from which both sides take credentials.
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
    """Return the kind of object store of a URI; None for a folder or an unknown kind."""
    return _STORES.get(urlsplit(location).scheme)


def check_scheme(setting: str, location: str) -> None:
    """Check that both Iceberg's Java side and pyiceberg support a location.

    Args:
        setting: name of the setting, for the error.
        location: a folder, a URI, or a catalog's name for its warehouse.

    Raises:
        SettingError: they do not both support its scheme.
    """
    scheme, separator, _ = location.partition("://")
    if separator and scheme not in {*_STORES, *_FILE_SYSTEMS}:
        schemes = ", ".join(f"{name}://" for name in (*_STORES, *_FILE_SYSTEMS))
        raise SettingError(setting, f"must be a folder, or begin with one of {schemes}, but is: {location}")


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a catalog's properties under the names of Iceberg's Java side."""
    java = dict(properties)
    region = java.pop("s3.region", None)
    if region is not None:
        java.setdefault("client.region", region)
    if "s3.endpoint" in java and java.get("s3.force-virtual-addressing", "").lower() != "true":
        # As pyarrow does: a private server rarely has a host name for each bucket.
        java.setdefault("s3.path-style-access", "true")
    if {"adls.account-name", "adls.account-key"} <= java.keys():
        java.setdefault("adls.auth.shared-key.account.name", java["adls.account-name"])
        java.setdefault("adls.auth.shared-key.account.key", java["adls.account-key"])
    return java
