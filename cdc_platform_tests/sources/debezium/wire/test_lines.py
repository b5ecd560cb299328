import gzip
import os
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_platform.sources.debezium.wire import lines as lines_module
from cdc_platform.sources.debezium.wire.lines import FileLines, further_lines, whole_lines
from cdc_platform.sources.text_files import BYTE_ORDER_MARK, FileDamaged
from cdc_platform_tests.support.copied_bytes import MeasuredStream

LINES = ['{"a": "one\u2028line\x85of\x0bmany"}', "", '{"b": 1}\r']


def test_only_a_line_feed_ends_a_line() -> None:
    """A text may have what other systems take for the end of a line, plain or gzip."""
    data = "\n".join([*LINES, ""]).encode()

    assert whole_lines(data).lines == LINES
    assert whole_lines(gzip.compress(data)).lines == LINES


@pytest.mark.parametrize("begun", ['{"b":', '{"b": "}', "12", '{"b": 1}}'])
def test_a_line_without_end_waits_where_a_file_may_grow(begun: str) -> None:
    """The last line of a plain file counts once it is a whole object; a gzip is whole when it is there."""
    data = "\n".join([*LINES, begun]).encode()

    assert whole_lines(data).lines == LINES
    assert whole_lines(gzip.compress(data)).lines == [*LINES, begun]


def test_the_last_line_needs_no_end() -> None:
    """Many programs write none behind the last object, and some a mark before the first one."""
    assert whole_lines(b'\xef\xbb\xbf{"a":1}\n{"b":2}').lines == ['{"a":1}', '{"b":2}']
    assert whole_lines(b"").lines == []


@given(
    st.lists(st.sampled_from(['{"a":1}', '{"ä":"\udcff"}', "", "  ", '{"b":2}\r', "half"])),
    st.lists(st.integers(0, 200)),
    st.booleans(),
)
@example(lines=["", "", "  ", '{"b":2}\r'], sizes=[12], has_mark=False)
def test_a_file_that_grows_gives_the_lines_of_the_whole_file(
    lines: list[str], sizes: list[int], has_mark: bool
) -> None:
    """However a file has grown, and whatever of it was read before, nothing is lost, doubled or moved.

    Only a carriage return may be left out that comes behind an object which was read without its end.
    """
    text = "\n".join(lines).encode(errors="surrogateescape")
    data = (BYTE_ORDER_MARK if has_mark else b"") + text
    read = list[str]()
    read_bytes = 0
    for size in [*sorted(size for size in sizes if size <= len(data)), len(data)]:
        now = data[:size]
        if not has_mark or size >= len(BYTE_ORDER_MARK):
            found = _lines_since(now, read_bytes)
            taken = len(found.lines) - size % 2 if found.lines else 0
            read += found.lines[:taken]
            read_bytes = found.end_of(taken)
            assert _stripped(whole_lines(now).lines) == _stripped([*read, *found.lines[taken:]])
    read += _lines_since(data, read_bytes).lines
    assert _stripped(whole_lines(data).lines) == _stripped(read)


def _stripped(lines: Sequence[str]) -> list[str]:
    return [line.rstrip("\r") for line in lines]


def _lines_since(data: bytes, read_bytes: int) -> FileLines:
    return further_lines(data[read_bytes - 1 :], read_bytes) if read_bytes else whole_lines(data)


def test_a_line_that_goes_on_after_it_was_read_is_damage() -> None:
    """An object without an end is a whole line; what follows it on that line cannot be read any more."""
    read = whole_lines(b'{"a":1}')
    assert (read.lines, read.end_of(1)) == (['{"a":1}'], 7)
    with pytest.raises(FileDamaged, match="goes on, or is another one"):
        further_lines(b'}{"b":2}\n', 7)
    assert further_lines(b"}\r", 7).lines == []
    assert further_lines(b'}\r\n{"b":2}', 7).lines == ['{"b":2}']


@pytest.mark.parametrize("damage", ["cut", "bent"])
def test_a_damaged_gzip_says_so(damage: str) -> None:
    """A gzip that ends too early, or has other octets within, is no shorter file."""
    data = gzip.compress("\n".join(f"{number * 7919}" for number in range(1000)).encode())
    half = len(data) // 2
    damaged = data[:half] if damage == "cut" else data[:half] + bytes(8) + data[half + 8 :]

    with pytest.raises(FileDamaged, match=r"no gzip from some place on|ends too early"):
        whole_lines(damaged)


def test_a_gzip_unpacks_to_so_much_and_no_more() -> None:
    """A file of few bytes that has endless text is refused, and its reason names the setting."""
    data = gzip.compress(b"{}\n" * 10_000)
    assert len(whole_lines(data, 30_000).lines) == 10_000
    with pytest.raises(FileDamaged, match=r"more than 29999 bytes.*most_unpacked_bytes"):
        whole_lines(data, 29_999)


def test_zeros_behind_a_gzip_are_no_damage() -> None:
    """A gzip of several members, padded with zeros as tapes and blocks of disks do it, is read as a whole."""
    data = gzip.compress(b'{"a":1}\n') + bytes(9) + gzip.compress(b'{"b":2}\n') + bytes(2**19)
    assert whole_lines(data).lines == ['{"a":1}', '{"b":2}']


def test_a_long_line_of_a_gzip_is_copied_a_few_times() -> None:
    """The octets allocated are a small multiple of the line, however many chunks it comes in."""
    long = os.urandom(2**24).hex()
    with (
        MeasuredStream(gzip.compress(f"{{}}\n{long}\n[]".encode(), 1)) as stream,
        patch.object(lines_module, "BytesIO", lambda _: stream),
    ):
        found = whole_lines(gzip.compress(b"")).lines
    assert ["{}", long, "[]"] == found
    assert stream.allocated_bytes < 8 * len(long)


def test_a_gzip_beyond_the_bound_is_not_unpacked() -> None:
    """What is unpacked before it is refused is little more than the bound."""
    with (
        MeasuredStream(gzip.compress(bytes(2**27), 1)) as stream,
        patch.object(lines_module, "BytesIO", lambda _: stream),
        pytest.raises(FileDamaged, match="most_unpacked_bytes"),
    ):
        whole_lines(gzip.compress(b""), 2**20)
    assert stream.largest_bytes < 2**23
