"""The lines of files: plain ones that grow, and gzips that appear whole."""

import gzip
import os
from collections.abc import Iterable
from io import BytesIO
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.wire.lines import Line, check_gzip, raw_lines, read_lines
from cdc_platform.sources.text_files import BYTE_ORDER_MARK, FileDamaged
from cdc_platform_tests.support.footprints.copied_bytes import MeasuredStream

LINES = ['{"a": "one\u2028line\x85of\x0bmany"}', "", '{"b": 1}\r']


def texts_of(data: bytes) -> list[str]:
    """Return the whole lines of a file."""
    return _decoded(read_lines(BytesIO(data)))


def _decoded(lines: Iterable[Line]) -> list[str]:
    return [line.text.decode(errors="surrogateescape") for line in lines]


class ByteByByte(BytesIO):
    """A file of which each read returns one byte."""

    def read(self, _size: int | None = -1, /) -> bytes:
        """Return the next byte."""
        return super().read(1)


def test_a_byte_order_mark_may_come_in_parts() -> None:
    """A store, or a gzip, may give the first bytes of a file one by one."""
    assert _decoded(read_lines(ByteByByte(BYTE_ORDER_MARK + b'{"a":1}\n'))) == ['{"a":1}']


def test_a_file_that_was_cut_meanwhile_has_no_lines() -> None:
    """It may have become shorter since it was listed."""
    assert _decoded(read_lines(BytesIO(b""), read_bytes=9)) == []


def test_only_a_line_feed_ends_a_line() -> None:
    """A text may have what other systems take for the end of a line, plain or gzip."""
    data = "\n".join([*LINES, ""]).encode()

    assert texts_of(data) == LINES
    assert texts_of(gzip.compress(data)) == LINES


@pytest.mark.parametrize("begun", ['{"b":', '{"b": "}', "12", '{"b": 1}}'])
def test_a_line_without_end_waits_where_a_file_may_grow(begun: str) -> None:
    """The last line of a plain file counts once it is a whole object; a gzip is whole when it is there."""
    data = "\n".join([*LINES, begun]).encode()

    assert texts_of(data) == LINES
    assert texts_of(gzip.compress(data)) == [*LINES, begun]


def test_the_last_line_needs_no_end() -> None:
    """Many programs write none behind the last object, and some a mark before the first one."""
    assert texts_of(b'\xef\xbb\xbf{"a":1}\n{"b":2}') == ['{"a":1}', '{"b":2}']
    assert texts_of(b"") == []


@given(
    st.lists(st.sampled_from(['{"a":1}', '{"ä":"\udcff"}', "", "  ", '{"b":2}\r', "half"])),
    st.lists(st.integers(0, 200)),
    st.booleans(),
)
@example(lines=["", "", "  ", '{"b":2}\r'], sizes=[12], has_mark=False)
def test_a_file_that_grows_gives_the_lines_of_the_whole_file(
    lines: list[str], sizes: list[int], has_mark: bool
) -> None:
    """For any growth of a file, nothing is lost, duplicated or moved.

    Only a carriage return may be left out that comes behind an object which was read without its end.
    """
    text = "\n".join(lines).encode(errors="surrogateescape")
    data = (BYTE_ORDER_MARK if has_mark else b"") + text
    read = list[str]()
    read_bytes = 0
    for size in [*sorted(size for size in sizes if size <= len(data)), len(data)]:
        now = data[:size]
        if not has_mark or size >= len(BYTE_ORDER_MARK):
            new_lines = _lines_since(now, read_bytes)
            taken = len(new_lines) - size % 2 if new_lines else 0
            read += _decoded(new_lines[:taken])
            read_bytes = new_lines[taken - 1].read_bytes if taken else read_bytes
            assert _stripped(texts_of(now)) == _stripped([*read, *_decoded(new_lines[taken:])])
    read += _decoded(_lines_since(data, read_bytes))
    assert _stripped(texts_of(data)) == _stripped(read)


def _stripped(lines: list[str]) -> list[str]:
    return [line.rstrip("\r") for line in lines]


def _lines_since(data: bytes, read_bytes: int) -> list[Line]:
    return list(read_lines(BytesIO(data[max(read_bytes - 1, 0) :]), read_bytes))


class Chunks(BytesIO):
    """A file that is read in chunks of a few bytes, however many are asked for."""

    def __init__(self, data: bytes, chunk_bytes: int) -> None:
        super().__init__(data)
        self._chunk_bytes = chunk_bytes

    def read(self, _size: int | None = -1, /) -> bytes:
        """Return the next chunk."""
        return super().read(self._chunk_bytes)


@given(texts=st.lists(st.text("a{}\r", max_size=6).map(str.encode), max_size=8), size=st.integers(1, 9))
def test_a_chunk_describes_its_lines_without_parting_them(texts: list[bytes], size: int) -> None:
    """The number, the end and the last one of a chunk's lines are those of its lines one by one."""
    file = Chunks(b"".join(text + b"\n" for text in texts), size)
    expected = map(Line, texts, accumulate(len(text) + 1 for text in texts))
    chunks = [*raw_lines(file, file.read(), 0)]
    by_chunk = [[*chunk.one_by_one()] for chunk in chunks]
    assert [*expected] == [line for part in by_chunk for line in part]
    assert [(len(part), part[-1]) for part in by_chunk] == [(len(chunk), chunk.last) for chunk in chunks]
    for number, _ in enumerate(texts[: len(by_chunk[0])] if by_chunk else ()):
        assert by_chunk[0][number:] == [*chunks[0].without_first(number).one_by_one()]


def test_a_line_that_continues_after_it_was_read_is_damage() -> None:
    """An object without an end is a whole line; what follows it on that line cannot be read any more."""
    assert _lines_since(b'{"a":1}', 0) == [Line(b'{"a":1}', 7)]
    with pytest.raises(FileDamaged, match="continues, or is another one"):
        _lines_since(b'{"a":1}}{"b":2}\n', 7)
    assert _lines_since(b'{"a":1}\r', 7) == []
    assert _lines_since(b'{"a":1}\r\n{"b":2}', 7) == [Line(b'{"b":2}', 16)]


@pytest.mark.parametrize("damage", ["cut", "bent"])
def test_a_damaged_gzip_says_so(damage: str) -> None:
    """A gzip that ends too early, or has other octets within, is not a shorter file."""
    data = gzip.compress("\n".join(f"{number * 7919}" for number in range(1000)).encode())
    half = len(data) // 2
    damaged = data[:half] if damage == "cut" else data[:half] + bytes(8) + data[half + 8 :]

    with pytest.raises(FileDamaged, match=r"gzip data is damaged or incomplete|ends too early"):
        check_gzip(BytesIO(damaged), 2**20)


def test_a_gzip_unpacks_to_so_much_and_no_more() -> None:
    """A file of few bytes that has endless text is refused, and its reason names the setting."""
    data = gzip.compress(b"{}\n" * 10_000)
    check_gzip(BytesIO(data), 30_000)
    assert len(texts_of(data)) == 10_000
    with pytest.raises(FileDamaged, match=r"more than 29999 bytes.*max_unpacked_bytes"):
        check_gzip(BytesIO(data), 29_999)
    check_gzip(BytesIO(b"{}\n" * 10_000), 29_999)


def test_zeros_behind_a_gzip_are_no_damage() -> None:
    """A gzip of several members, padded with zeros as tapes and blocks of disks do it, is read as a whole."""
    data = gzip.compress(b'{"a":1}\n') + bytes(9) + gzip.compress(b'{"b":2}\n') + bytes(2**19)
    check_gzip(BytesIO(data), 2**20)
    assert texts_of(data) == ['{"a":1}', '{"b":2}']


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_long_line_is_copied_a_few_times(is_gzip: bool) -> None:
    """The octets allocated are a small multiple of the line, for any number of chunks."""
    long = os.urandom(2**24).hex()
    data = f'{{}}\n{long}\n{{"a": 1}}'.encode()
    with MeasuredStream(gzip.compress(data, 1) if is_gzip else data) as stream:
        texts = [line.text for line in read_lines(stream)]
    assert [b"{}", long.encode(), b'{"a": 1}'] == texts
    assert stream.allocated_bytes < 8 * len(long)


@pytest.mark.parametrize("is_gzip", [False, True])
def test_many_lines_are_never_in_memory_at_once(is_gzip: bool) -> None:
    """The memory for a file of tiny lines does not grow with it."""
    data = b"{}\n" * 2**18
    with MeasuredStream(gzip.compress(data, 1) if is_gzip else data) as stream:
        assert sum(1 for _ in read_lines(stream)) == 2**18
    assert stream.largest_bytes < 2**24


def test_a_gzip_beyond_the_bound_is_not_unpacked() -> None:
    """A gzip is refused soon after its text exceeds the bound."""
    with (
        MeasuredStream(gzip.compress(bytes(2**27), 1)) as stream,
        pytest.raises(FileDamaged, match="max_unpacked_bytes"),
    ):
        check_gzip(stream, 2**20)
    assert stream.largest_bytes < 2**24
