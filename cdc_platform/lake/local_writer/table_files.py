"""The files of a merged table's snapshot: data files, and the vectors of their deleted rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.lake.local_writer.manifests import V3, is_vector, read_entries, read_manifests, vector_place

ENCRYPTION: Final = "encryption.key-id"


@dataclass(frozen=True)
class TableFiles:
    """The files of one snapshot; ``vectors`` are entries of deletion vectors by their data file's path."""

    manifests: tuple[ManifestFile, ...]
    data: tuple[DataFile, ...]
    vectors: Mapping[str, ManifestEntry]


def is_writable(table: Table) -> bool:
    """Return whether this process can write a table of this form, regardless of its snapshots."""
    is_plain = table.metadata.format_version == V3 and table.spec().is_unpartitioned()
    # pyiceberg does not support encryption keys, and would drop them from the metadata.
    return is_plain and ENCRYPTION not in table.properties


def read_files(table: Table, snapshot: Snapshot) -> TableFiles | None:
    """Return a snapshot's files; None if it has partitions, other formats, or deletes without vectors."""
    if not is_writable(table):
        return None
    manifests = read_manifests(table.io, snapshot)
    data = _entries(table.io, manifests, ManifestContent.DATA)
    deletes = _entries(table.io, manifests, ManifestContent.DELETES)
    if not all(is_vector(entry.data_file) for entry in deletes):
        return None
    files = [entry.data_file for entry in data]
    if any(len(file.partition) or file.file_format is not FileFormat.PARQUET for file in files):
        return None
    vectors = {vector_place(entry.data_file).data_file: entry for entry in deletes}
    return TableFiles(manifests, tuple(files), vectors)


def _entries(io: FileIO, manifests: Sequence[ManifestFile], content: ManifestContent) -> list[ManifestEntry]:
    return [
        entry for manifest in manifests if manifest.content == content for entry in read_entries(io, manifest)
    ]
