"""Metadata files of Iceberg's format version 3, which pyiceberg reads but does not write."""

from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

from cdc_platform.errors import ClockBehind
from cdc_platform.model.base.timestamps import to_rfc3339

TOLERANCE_MS: Final = 60_000
"""Iceberg's tolerance for differences between the clocks of machines."""


class _Writable(TableMetadataV3):
    """Metadata of pyiceberg 0.12, which reads everything that Spark writes, but refuses to write it."""

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:
        return IcebergBaseModel.model_dump_json(self, *args, **kwargs)


class Version3Metadata:
    """First base class of a pyiceberg catalog that can write metadata files of version 3.

    The SQL, Glue and Hive catalogs write them only with these methods. A REST server writes them itself.
    """

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        _require_order(metadata)
        # Its name is unique: an object store need not be asked, by two requests, whether it is there.
        ToOutputFile.table_metadata(_writable(metadata), io.new_output(metadata_path), overwrite=True)

    _write_metadata_no_exist_check = _write_metadata


def _require_order(metadata: TableMetadata) -> None:
    """Check that Iceberg's Java side can read the metadata: it rejects logs that go back in time.

    Raises:
        ClockBehind: the newest entry of a log is more than a minute after the change.
    """
    # Earlier entries were checked when they were written.
    snapshots = [entry.timestamp_ms for entry in metadata.snapshot_log[-2:]]
    files = [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    newest_ms = max([*snapshots, *files], default=0)
    if newest_ms - metadata.last_updated_ms > TOLERANCE_MS:
        raise ClockBehind(f"That commit is of {to_rfc3339(newest_ms * 1000)}: {metadata.location}")


def _writable(metadata: TableMetadata) -> TableMetadata:
    if not isinstance(metadata, TableMetadataV3):
        return metadata
    # pyiceberg leaves it out of a new table, and Java requires it.
    return _Writable.model_construct(**{**dict(metadata), "next_row_id": metadata.next_row_id or 0})
