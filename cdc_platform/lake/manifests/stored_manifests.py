"""Manifests of all format versions as they are stored, whose entries a process reads once."""

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Final

from cachetools import LRUCache, cached
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.snapshots import Snapshot

V3: Final = 3

# Positions in records of fields that only version 3 has, without names: of a manifest, then of a file.
FIRST_ROW_ID: Final = 15
FILE_FIRST_ROW_ID: Final = 16

KEPT_COLUMNS: Final = 200_000
"""Maximum number of columns that the entries of a process describe, which take about 80 MB.

Those of the most recently used manifests of all tables are kept.
"""


def _weigh(entries: Sequence[ManifestEntry]) -> int:
    """Return the columns that entries describe; what has none counts, too, so that its number is bounded."""
    return 1 + sum(1 + len(entry.data_file.value_counts or ()) for entry in entries)


KEPT: Final = LRUCache[str, tuple[ManifestEntry, ...]](KEPT_COLUMNS, _weigh)
"""Live entries of manifests, by the path of the manifest."""


class StoredManifest(ManifestFile):
    """A manifest, which never changes, so its live entries are read once.

    pyiceberg decodes the Avro schema of each file that it opens, which takes longer than the entries of a
    small commit.
    """

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Return the entries; callers must not change them."""
        return [*read_entries(io, self)] if discard_deleted else super().fetch_manifest_entry(io, False)


def read_manifests(io: FileIO, snapshot: Snapshot) -> tuple[StoredManifest, ...]:
    """Return the manifests of a snapshot, with their first row ids."""
    with AvroFile[StoredManifest](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[V3],
        read_types={-1: StoredManifest, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as manifests:
        return tuple(manifests)


def _path(_io: FileIO, manifest: ManifestFile) -> str:
    return manifest.manifest_path


@cached(KEPT, key=_path, lock=Lock())
def read_entries(io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    """Return the live entries of a manifest; callers must not change them."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[V3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        return tuple(_inherit(entries, manifest))


def _inherit(entries: Iterable[ManifestEntry], manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """Yield the live entries, with the values that new entries inherit from the manifest."""
    next_row_id = manifest[FIRST_ROW_ID]
    for entry in entries:
        if entry.status == ManifestEntryStatus.DELETED:
            continue
        if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
            entry.snapshot_id = manifest.added_snapshot_id
        if entry.status == ManifestEntryStatus.ADDED:
            if entry.sequence_number is None:
                entry.sequence_number = manifest.sequence_number
            if entry.file_sequence_number is None:
                entry.file_sequence_number = manifest.sequence_number
        file = entry.data_file
        file.spec_id = manifest.partition_spec_id
        if next_row_id is not None and file[FILE_FIRST_ROW_ID] is None:
            file[FILE_FIRST_ROW_ID] = next_row_id
            next_row_id += file.record_count
        yield entry
