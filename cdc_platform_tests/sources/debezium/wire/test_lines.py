import gzip

import pytest

from cdc_platform.sources.debezium.wire.lines import whole_lines
from cdc_platform.sources.text_files import FileDamaged

LINES = ['{"a": "one\u2028line\x85of\x0bmany"}', "", '{"b": 1}\r']


def test_only_a_line_feed_ends_a_line() -> None:
    """A text may have what other systems take for the end of a line, plain or gzip."""
    data = "\n".join([*LINES, ""]).encode()

    assert whole_lines(data) == LINES
    assert whole_lines(gzip.compress(data)) == LINES


@pytest.mark.parametrize("begun", ['{"b":', '{"b": "}', "12", '{"b": 1}}'])
def test_a_line_without_end_waits_where_a_file_may_grow(begun: str) -> None:
    """The last line of a plain file counts once it is a whole object; a gzip is whole when it is there."""
    data = "\n".join([*LINES, begun]).encode()

    assert whole_lines(data) == LINES
    assert whole_lines(gzip.compress(data)) == [*LINES, begun]


def test_the_last_line_needs_no_end() -> None:
    """Many programs write none behind the last object, and some a mark before the first one."""
    assert whole_lines(b'\xef\xbb\xbf{"a":1}\n{"b":2}') == ['{"a":1}', '{"b":2}']
    assert whole_lines(b"") == []


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
    assert len(whole_lines(data, 30_000)) == 10_000
    with pytest.raises(FileDamaged, match=r"more than 29999 bytes.*most_unpacked_bytes"):
        whole_lines(data, 29_999)


def test_zeros_behind_a_gzip_are_no_damage() -> None:
    """A gzip of several members, padded with zeros as tapes and blocks of disks do it, is read as a whole."""
    data = gzip.compress(b'{"a":1}\n') + bytes(9) + gzip.compress(b'{"b":2}\n') + bytes(2**19)
    assert whole_lines(data) == ['{"a":1}', '{"b":2}']
