"""Manifests of Iceberg's format version 3, which pyiceberg reads only in part and does not write."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

V3: Final = 3
COMPRESSION: Final = "deflate"

# Positions in records of fields that only version 3 has, without names: of a manifest, then of a file.
FIRST_ROW_ID: Final = 15
FILE_FIRST_ROW_ID: Final = 16
REFERENCED_DATA_FILE: Final = 17
CONTENT_OFFSET: Final = 18
CONTENT_SIZE: Final = 19
FIELDS_OF_FILE: Final = 20

KEPT_MANIFESTS: Final = 512
"""Maximum number of cached manifests of all tables; their content never changes."""


@dataclass(frozen=True)
class VectorPlace:
    """Place of a deletion vector in its file, and the path of its data file."""

    data_file: str
    offset: int
    length: int


@dataclass(frozen=True)
class _StoredManifest:
    path: str
    manifest: ManifestFile = field(compare=False)
    io: FileIO = field(compare=False)


def vector_place(delete_file: DataFile) -> VectorPlace:
    """Return the data file of a deletion vector, and the bytes of the vector in its own file."""
    return VectorPlace(
        delete_file[REFERENCED_DATA_FILE], delete_file[CONTENT_OFFSET], delete_file[CONTENT_SIZE]
    )


def is_vector(delete_file: DataFile) -> bool:
    """Return whether a delete file is a deletion vector."""
    return delete_file.file_format == FileFormat.PUFFIN and delete_file[REFERENCED_DATA_FILE] is not None


def read_manifests(io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot, with their first row ids."""
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[V3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as manifests:
        return tuple(manifests)


def read_entries(io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    """Return the live entries of a manifest; callers must not change them."""
    return _read_entries(_StoredManifest(manifest.manifest_path, manifest, io))


@lru_cache(maxsize=KEPT_MANIFESTS)
def _read_entries(manifest: _StoredManifest) -> tuple[ManifestEntry, ...]:
    with AvroFile[ManifestEntry](
        manifest.io.new_input(manifest.path),
        MANIFEST_ENTRY_SCHEMAS[V3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        return tuple(_inherit(entries, manifest.manifest))


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


class ManifestWriterV3(ManifestWriterV2):
    """Writer of entries of data files or deletion vectors."""

    def __init__(
        self,
        spec: PartitionSpec,
        schema: Schema,
        output: OutputFile,
        snapshot_id: int,
        content: ManifestContent,
    ) -> None:
        """Prepare a manifest of one snapshot."""
        super().__init__(spec, schema, output, snapshot_id, COMPRESSION)
        self._content = content

    def content(self) -> ManifestContent:
        """Return whether it lists data files or delete files."""
        return self._content

    @property
    def version(self) -> Literal[3]:
        """The format version of its table."""
        return V3

    @property
    def _meta(self) -> dict[str, str]:
        content = "data" if self._content == ManifestContent.DATA else "deletes"
        return {**super()._meta, "content": content}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Return a writer with the fields of version 3, which the base class omits."""
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(V3),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def to_manifest_file(self) -> ManifestFile:
        """Return its entry in the manifest list."""
        manifest = super().to_manifest_file()
        return ManifestFile(*(manifest[place] for place in range(FIRST_ROW_ID)), None)


def with_version_3(file: DataFile) -> DataFile:
    """Return a file of pyiceberg with room for the fields that only version 3 has."""
    fields = [file[place] for place in range(len(file))]
    return DataFile(*fields, *[None] * (FIELDS_OF_FILE - len(fields)))


@dataclass(frozen=True)
class Numbering:
    """The numbers that a commit assigns to manifests: their sequence number, and the first free row id."""

    snapshot_id: int
    sequence_number: int
    next_row_id: int


def number_manifests(
    manifests: Sequence[ManifestFile], numbering: Numbering
) -> tuple[list[ManifestFile], int]:
    """Return manifests with the numbers of their commit, and the number of row ids that it assigns."""
    numbered_manifests: list[ManifestFile] = []
    next_row_id = numbering.next_row_id
    for manifest in manifests:
        copy = ManifestFile(*(manifest[place] for place in range(len(manifest))))
        if copy.sequence_number == UNASSIGNED_SEQ:
            copy.sequence_number = numbering.sequence_number
        if copy.min_sequence_number == UNASSIGNED_SEQ:
            copy.min_sequence_number = numbering.sequence_number
        if copy.content == ManifestContent.DATA and copy[FIRST_ROW_ID] is None:
            copy[FIRST_ROW_ID] = next_row_id
            next_row_id += (copy.added_rows_count or 0) + (copy.existing_rows_count or 0)
        numbered_manifests.append(copy)
    return numbered_manifests, next_row_id - numbering.next_row_id


def write_manifest_list(
    output: OutputFile, manifests: Sequence[ManifestFile], numbering: Numbering, parent_id: int | None
) -> None:
    """Write the manifest list of a snapshot, as format version 3 requires."""
    properties: dict[str, Any] = {
        "snapshot-id": str(numbering.snapshot_id),
        "parent-snapshot-id": str(parent_id) if parent_id is not None else "null",
        "sequence-number": str(numbering.sequence_number),
        "first-row-id": str(numbering.next_row_id),
        "format-version": str(V3),
        AVRO_CODEC_KEY: COMPRESSION,
    }
    with AvroOutputFile[ManifestFile](
        output_file=output,
        file_schema=MANIFEST_LIST_FILE_SCHEMAS[V3],
        schema_name="manifest_file",
        metadata=properties,
    ) as writer:
        writer.write_block(list(manifests))
