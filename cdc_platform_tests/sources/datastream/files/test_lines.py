"""Lines of text files take memory and time in proportion to their length."""

import gzip
import os
from collections.abc import Callable

import pytest

from cdc_platform.sources.datastream.files.lines import read_blocks
from cdc_platform.sources.text_files import CHUNK_BYTES
from cdc_platform_tests.support.footprints.copied_bytes import MeasuredStream

CHUNKS = 128


@pytest.fixture(scope="module")
def long_line() -> bytes:
    """A line of 32 MB, which compresses to about half; it is gone after these tests."""
    return os.urandom(CHUNKS * CHUNK_BYTES // 2).hex().encode()


def quick(data: bytes) -> bytes:
    """Return the gzip of octets."""
    return gzip.compress(data, 1)


@pytest.mark.parametrize("compress", [bytes, quick])
def test_a_long_line_is_copied_a_few_times(compress: Callable[[bytes], bytes], long_line: bytes) -> None:
    """The octets allocated are a small multiple of the line, for any number of chunks."""
    with MeasuredStream(compress(b"{}\n" + long_line + b"\n[]")) as stream:
        lines = [line for block in read_blocks(stream) for line in block]
    assert lines == [b"{}", long_line, b"[]"]
    assert stream.allocated_bytes < 8 * len(long_line)


@pytest.mark.parametrize("compress", [bytes, quick])
def test_a_line_beyond_the_bound_is_not_kept(compress: Callable[[bytes], bytes], long_line: bytes) -> None:
    """Each of its chunks is dropped as it comes, and a gzip is unpacked a chunk at a time."""
    with MeasuredStream(compress(b"{}\n" + b"x" * len(long_line) + b"\n[]")) as stream:
        lines = [line for block in read_blocks(stream, CHUNK_BYTES) for line in block]
    assert [len(line) < 1_000 for line in lines] == [True] * 3
    assert f"{len(long_line)} bytes, more than `max_block_bytes`".encode() in lines[1]
    assert stream.largest_bytes < 8 * CHUNK_BYTES


def test_many_short_lines_are_copied_a_few_times() -> None:
    """The same holds for a file of as many lines as its size allows."""
    with MeasuredStream(b"1\n" * (4 * CHUNK_BYTES)) as stream:
        count = sum(map(len, read_blocks(stream)))
    assert count == 4 * CHUNK_BYTES
    # An object of Python's takes some 40 octets, whatever it has.
    assert stream.allocated_bytes < 400 * count
