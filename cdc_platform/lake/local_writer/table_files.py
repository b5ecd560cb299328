"""The files of a merged table's snapshot: data files, and the vectors of their deleted rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType

from cdc_platform.lake.local_writer.manifests import is_vector, vector_place
from cdc_platform.lake.manifests.stored_manifests import V3, read_entries, read_manifests

ENCRYPTION: Final = "encryption.key-id"


@dataclass(frozen=True)
class TableFiles:
    """The files of one snapshot; ``vectors`` are entries of deletion vectors by their data file's path."""

    manifests: tuple[ManifestFile, ...]
    data: tuple[DataFile, ...]
    vectors: Mapping[str, ManifestEntry]


def is_writable(table: Table) -> bool:
    """Return whether this process can write a table of this form, regardless of its snapshots."""
    # Other transforms would have to give the values that Spark's give.
    has_plain_values = all(isinstance(field.transform, IdentityTransform) for field in table.spec().fields)
    kinds = [table.schema().find_type(field.source_id) for field in table.spec().fields]
    # pyiceberg finds a partition's rows by equality: NaN's would be lost, and those of 0.0 and -0.0 doubled.
    is_exact = not any(isinstance(kind, (FloatType, DoubleType)) for kind in kinds)
    # pyiceberg does not support encryption keys, and would drop them from the metadata.
    is_plain = table.metadata.format_version == V3 and ENCRYPTION not in table.properties
    return is_plain and has_plain_values and is_exact


def read_files(table: Table, snapshot: Snapshot) -> TableFiles | None:
    """Return a snapshot's files; None if it has old partitions, other formats, or deletes without vectors."""
    if not is_writable(table):
        return None
    manifests = read_manifests(table.io, snapshot)
    data = _entries(table.io, manifests, ManifestContent.DATA)
    deletes = _entries(table.io, manifests, ManifestContent.DELETES)
    spec_ids = {entry.data_file.spec_id for entry in (*data, *deletes)}
    if not all(is_vector(entry.data_file) for entry in deletes) or spec_ids - {table.spec().spec_id}:
        return None
    files = [entry.data_file for entry in data]
    if any(file.file_format is not FileFormat.PARQUET for file in files):
        return None
    vectors = {vector_place(entry.data_file).data_file: entry for entry in deletes}
    return TableFiles(manifests, tuple(files), vectors)


def files_in(table: Table, files: Sequence[DataFile], partition: Mapping[str, object]) -> list[DataFile]:
    """Return the files of a table that may have rows with some values in columns of its partitions."""
    columns = [table.schema().find_field(field.source_id).name for field in table.spec().fields]
    values = [(place, partition[name]) for place, name in enumerate(columns) if name in partition]
    return [file for file in files if all(file.partition[place] == value for place, value in values)]


def _entries(io: FileIO, manifests: Sequence[ManifestFile], content: ManifestContent) -> list[ManifestEntry]:
    return [
        entry for manifest in manifests if manifest.content == content for entry in read_entries(io, manifest)
    ]
