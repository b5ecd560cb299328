"""Deletion vectors: this project and others read what was written, and damage is reported."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from cdc_platform.lake.local_writer.deletion_vectors import (
    decode_vector,
    encode_vector,
    read_vector,
    write_vectors,
)
from cdc_platform.lake.local_writer.manifests import is_vector, vector_place

POSITIONS = st.sets(st.integers(0, 2**40) | st.integers(0, 70_000))


@given(positions=POSITIONS)
def test_a_vector_is_what_it_was_made_of(positions: set[int]) -> None:
    """Positions beyond 32 bits are kept, too."""
    assert positions == set(decode_vector(encode_vector(BitMap64(positions))))


@pytest.mark.parametrize("place", [0, 4, 20, -1])
def test_a_damaged_vector_is_reported(place: int) -> None:
    """Wherever a byte differs, no row is deleted by what is left."""
    blob = bytearray(encode_vector(BitMap64(range(0, 5000, 3))))
    blob[place] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        decode_vector(bytes(blob))


def data_file(path: str) -> DataFile:
    """Return the entry of a data file in one partition."""
    return DataFile.from_args(file_path=path, partition=Record(True))


def test_vectors_share_a_file_that_others_read(tmp_path: Path) -> None:
    """Each has its own place in the file, and pyiceberg's reader of Puffin files finds the same positions."""
    io, path = PyArrowFileIO(), (tmp_path / "deletes.puffin").as_uri()
    gone = {"file:///a.parquet": BitMap64(range(100)), "file:///b.parquet": BitMap64([7, 2**33])}
    vectors = [(data_file(path), positions) for path, positions in gone.items()]
    entries = write_vectors(io.new_output(path), vectors)
    stored = (tmp_path / "deletes.puffin").read_bytes()

    assert all(map(is_vector, entries))
    assert [len(stored)] * 2 == [entry.file_size_in_bytes for entry in entries]
    assert gone == {vector_place(entry).data_file: read_vector(io, entry) for entry in entries}
    assert [entry.record_count for entry in entries] == [100, 2]
    assert [Record(True)] * 2 == [entry.partition for entry in entries]
    stored_vectors = deletion_vectors_from_puffin_file(PuffinFile(stored))
    assert {path: list(positions) for path, positions in gone.items()} == {
        other.referenced_data_file: other.to_vector().to_pylist() for other in stored_vectors
    }


def test_the_error_of_a_damaged_vector_names_its_file(tmp_path: Path) -> None:
    """Anyone who has to restore it learns which one."""
    io, path = PyArrowFileIO(), tmp_path / "deletes.puffin"
    vectors = [(data_file("file:///a.parquet"), BitMap64([1]))]
    (entry,) = write_vectors(io.new_output(path.as_uri()), vectors)
    path.write_bytes(path.read_bytes().replace(b"\xd1\xd3\x39\x64", b"\x00\xd3\x39\x64"))
    with pytest.raises(ValueError, match=r"deletes\.puffin at 4: .*damaged"):
        read_vector(io, entry)
