"""Deletion vectors: the deleted rows of a data file in Iceberg's format version 3.

The vectors of one commit share a Puffin file. See "Deletion vector blob type" of Iceberg's Puffin
specification, and "Deletion vectors" of its table specification.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyroaring import BitMap64

from cdc_platform.lake.local_writer.manifests import VectorPlace, vector_place
from cdc_platform.lake.manifests.stored_manifests import V3

PUFFIN_MAGIC: Final = b"PFA1"
VECTOR_MAGIC: Final = bytes.fromhex("d1d33964")
BLOB_TYPE: Final = "deletion-vector-v1"
ROW_POSITION_ID: Final = 2147483645
"""Iceberg's reserved id of the field `_pos`."""
LENGTH_BYTES: Final = 4
CHECKSUM_BYTES: Final = 4
NO_FLAGS: Final = bytes(4)


@dataclass(frozen=True)
class _Blob:
    data_file: DataFile
    positions: BitMap64
    payload: bytes
    offset: int

    def description(self) -> dict[str, object]:
        return {
            "type": BLOB_TYPE,
            "fields": [ROW_POSITION_ID],
            # Both belong to the commit and are not known yet.
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": self.offset,
            "length": len(self.payload),
            "properties": {
                "referenced-data-file": self.data_file.file_path,
                "cardinality": str(len(self.positions)),
            },
        }


def encode_vector(positions: BitMap64) -> bytes:
    """Return the blob of a deletion vector: length, magic, positions and checksum."""
    positions.run_optimize()
    vector = VECTOR_MAGIC + positions.serialize()
    length, checksum = len(vector), zlib.crc32(vector)
    return length.to_bytes(LENGTH_BYTES, "big") + vector + checksum.to_bytes(CHECKSUM_BYTES, "big")


def decode_vector(blob: bytes) -> BitMap64:
    """Return the positions of a deletion vector.

    Raises:
        ValueError: the blob is not a deletion vector, or is damaged.
    """
    vector, checksum = blob[LENGTH_BYTES:-CHECKSUM_BYTES], blob[-CHECKSUM_BYTES:]
    is_whole = int.from_bytes(blob[:LENGTH_BYTES], "big") == len(vector)
    if not is_whole or not vector.startswith(VECTOR_MAGIC) or zlib.crc32(vector) != int.from_bytes(checksum):
        raise ValueError("not a deletion vector, or a damaged one")
    return BitMap64.deserialize(vector[len(VECTOR_MAGIC) :])


def read_vector(io: FileIO, vector: DataFile) -> BitMap64:
    """Return the deleted positions of a table's deletion vector.

    Raises:
        ValueError: the vector is damaged; the error names its file.
    """
    place = vector_place(vector)
    with io.new_input(vector.file_path).open() as stream:
        stream.seek(place.offset)
        blob = stream.read(place.length)
    try:
        return decode_vector(blob)
    except ValueError as error:
        raise ValueError(f"{vector.file_path} at {place.offset}: {error}") from error


def write_vectors(output: OutputFile, vectors: Iterable[tuple[DataFile, BitMap64]]) -> list[DataFile]:
    """Write the deletion vectors of data files to one Puffin file, and return their manifest entries.

    Args:
        output: the file, which does not exist yet.
        vectors: the data files, each with all of its deleted positions.
    """
    blobs: list[_Blob] = []
    offset = len(PUFFIN_MAGIC)
    for data_file, rows in vectors:
        payload = encode_vector(rows)
        blobs.append(_Blob(data_file, rows, payload, offset))
        offset += len(payload)
    footer = json.dumps({"blobs": [blob.description() for blob in blobs], "properties": {}}).encode()
    tail = len(footer).to_bytes(4, "little") + NO_FLAGS + PUFFIN_MAGIC
    content = b"".join([PUFFIN_MAGIC, *(blob.payload for blob in blobs), PUFFIN_MAGIC, footer, tail])
    with output.create() as stream:
        stream.write(content)
    return [_entry(output.location, len(content), blob) for blob in blobs]


def _entry(path: str, size_bytes: int, blob: _Blob) -> DataFile:
    place = VectorPlace(blob.data_file.file_path, blob.offset, len(blob.payload))
    return DataFile.from_args(
        _table_format_version=V3,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PUFFIN,
        # Readers look for the vectors of a file in its own partition.
        partition=blob.data_file.partition,
        record_count=len(blob.positions),
        file_size_in_bytes=size_bytes,
        referenced_data_file=place.data_file,
        content_offset=place.offset,
        content_size_in_bytes=place.length,
    )
