"""Manifests of Iceberg's format version 3, which pyiceberg does not write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFile,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from cdc_platform.lake.manifests.stored_manifests import FIRST_ROW_ID, V3

COMPRESSION: Final = "deflate"

# Positions in records of fields that only version 3 has, without names.
REFERENCED_DATA_FILE: Final = 17
CONTENT_OFFSET: Final = 18
CONTENT_SIZE: Final = 19
FIELDS_OF_FILE: Final = 20


@dataclass(frozen=True)
class VectorPlace:
    """Place of a deletion vector in its file, and the path of its data file."""

    data_file: str
    offset: int
    length: int


def vector_place(delete_file: DataFile) -> VectorPlace:
    """Return the data file of a deletion vector, and the bytes of the vector in its own file."""
    return VectorPlace(
        delete_file[REFERENCED_DATA_FILE], delete_file[CONTENT_OFFSET], delete_file[CONTENT_SIZE]
    )


def is_vector(delete_file: DataFile) -> bool:
    """Return whether a delete file is a deletion vector."""
    return delete_file.file_format == FileFormat.PUFFIN and delete_file[REFERENCED_DATA_FILE] is not None


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
