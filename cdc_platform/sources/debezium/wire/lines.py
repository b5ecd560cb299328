"""The lines of a file of messages, plain or gzip."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

from cdc_platform.sources.debezium.wire.messages import load_json
from cdc_platform.sources.text_files import (
    BYTE_ORDER_MARK,
    CHUNK_BYTES,
    GZIP_MAGIC,
    FileDamaged,
    decompressed,
    plain,
)

MOST_UNPACKED_BYTES: Final = 1024**3
"""Of the text of a gzip, which each cycle that reads some of it unpacks from its beginning."""

MOST_LINE_BYTES: Final = 128 * 1024**2
"""Of a line, which takes several times as much while it is decoded."""
_SHOWN_BYTES: Final = 100_000


class Line(NamedTuple):
    """A whole line of a file, without its end; one that is still being written is none yet.

    A line ends with a line feed and nothing else: texts in JSON may have any other separator of lines. The
    last one needs no end where it is a whole object, of which no beginning is one.
    """

    text: str
    read_bytes: int
    """So many bytes of the file have been read with it; 0 in a gzip, which appears whole."""


class RawLine(NamedTuple):
    """A line as it is in a file; ``read_bytes`` is that of `Line`."""

    text: bytes
    read_bytes: int


def read_lines(stream: BinaryIO, read_bytes: int = 0) -> Iterator[Line]:
    """Yield the whole lines of a file, or those that it has got since some of it was read.

    Args:
        stream: the file, from the last byte on that was read.
        read_bytes: so many bytes were read.

    Raises:
        FileDamaged: no line ends there; or the file is a gzip that cannot be read to its end.
    """
    return map(decoded_line, raw_lines(stream, stream.read(CHUNK_BYTES), read_bytes))


def raw_lines(stream: BinaryIO, first: bytes, read_bytes: int) -> Iterator[RawLine]:
    """Yield the lines of a file of which a first chunk was read, without decoding them; see `read_lines`."""
    is_gzip = not read_bytes and first.startswith(GZIP_MAGIC)
    chunks = decompressed(stream, first) if is_gzip else plain(stream, first)
    end_bytes = max(read_bytes - 1, 0)
    for number, (text, length, is_ended) in enumerate(_cut(chunks)):
        end_bytes += length + is_ended
        if number == 0 and read_bytes:
            _check_end(text)
            continue
        whole = text.removeprefix(BYTE_ORDER_MARK) if number == 0 else text
        line = RawLine(whole, 0 if is_gzip else end_bytes)
        if is_ended or (line.text if is_gzip else _is_object(decoded_line(line).text)):
            yield line


def decoded_line(line: RawLine) -> Line:
    """Return the text of a line."""
    return Line(line.text.decode(errors="surrogateescape"), line.read_bytes)


def check_gzip(stream: BinaryIO, most_bytes: int) -> None:
    """Check that a file, if it is a gzip, can be read to its end, and has no more text than the bound.

    Raises:
        FileDamaged: it cannot, or has more.
    """
    first = stream.read(CHUNK_BYTES)
    if not first.startswith(GZIP_MAGIC):
        return
    text_bytes = 0
    for chunk in decompressed(stream, first):
        text_bytes += len(chunk)
        if text_bytes > most_bytes:
            raise FileDamaged(
                f"The gzip has more than {most_bytes} bytes of text. Give its lines in smaller files, "
                "or raise `input.files.most_unpacked_bytes`"
            )


def _cut(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, int, bool]]:
    """Yield the text before each line feed and behind the last one, its length, and whether it is ended.

    Of a line beyond the bound only the beginning is there, with what no JSON has behind it.
    """
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        length += len(first)
        if length <= MOST_LINE_BYTES:
            parts.append(first)
        for other in others:
            yield _joined(parts, length), length, True
            parts, length = [other], len(other)
    yield _joined(parts, length), length, False


def _joined(parts: list[bytes], length: int) -> bytes:
    text = b"".join(parts)
    if length <= MOST_LINE_BYTES:
        return text
    return (
        text[:_SHOWN_BYTES]
        + f"... (the line has {length} bytes, and the most are {MOST_LINE_BYTES})".encode()
    )


def _check_end(text: bytes) -> None:
    """Check what lies between the last byte that was read and the next line feed.

    The byte is in it where what was read last was a whole object without an end.
    """
    if text[1:].strip():
        raise FileDamaged("The line that was read last goes on, or is another one")


def _is_object(line: str) -> bool:
    try:
        return isinstance(load_json(line.strip()), dict)
    except ValueError:
        return False
