"""Lines of a file of messages, plain or gzip."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import BinaryIO, Final, NamedTuple

from cdc_platform.sources.debezium.wire.schema_blocks import load_json
from cdc_platform.sources.text_files import (
    BYTE_ORDER_MARK,
    CHUNK_BYTES,
    GZIP_MAGIC,
    FileDamaged,
    decompress,
    read_plain,
)

MAX_UNPACKED_BYTES: Final = 1024**3
"""Maximum bytes of text in a gzip file, which each cycle that reads it unpacks from its beginning."""

MAX_LINE_BYTES: Final = 128 * 1024**2
"""Maximum bytes of a line; decoding takes several times as much memory."""
_SHOWN_BYTES: Final = 100_000


class Line(NamedTuple):
    """A complete line of a file, without its end; a line that is still being written does not count.

    Only a line feed ends a line: strings in JSON may contain any other line separator. The last line needs no
    end if it is a complete object, because no prefix of an object is one.
    """

    text: bytes
    read_bytes: int
    """Bytes of the file up to its end; 0 in a gzip file, which appears whole."""


class Lines(NamedTuple):
    """Consecutive lines of a file that one chunk of it completes.

    ``lengths`` are their bytes in the file, including their ends; ``begun_bytes`` is their offset there. In a
    gzip file, all of these are 0.
    """

    texts: Sequence[bytes]
    lengths: Sequence[int]
    begun_bytes: int

    def one_by_one(self) -> Iterator[Line]:
        """Yield each line with the byte at which it ends."""
        ends = accumulate(self.lengths, initial=self.begun_bytes)
        next(ends)
        return map(Line, self.texts, ends)

    def without_first(self, lines: int) -> "Lines":
        """Return the lines without a number of first lines."""
        begun_bytes = self.begun_bytes + sum(self.lengths[:lines])
        return Lines(self.texts[lines:], self.lengths[lines:], begun_bytes)


def read_lines(stream: BinaryIO, read_bytes: int = 0) -> Iterator[Line]:
    """Yield the complete lines of a file, or those that were added since a part of it was read.

    Args:
        stream: the file, from the last byte that was read.
        read_bytes: number of bytes that were read.

    Raises:
        FileDamaged: no line ends there; or the file is a gzip that cannot be read to its end.
    """
    for lines in raw_lines(stream, stream.read(CHUNK_BYTES), read_bytes):
        yield from lines.one_by_one()


def raw_lines(stream: BinaryIO, first: bytes, read_bytes: int) -> Iterator[Lines]:
    """Yield the lines of a file after its first chunk was read; see `read_lines`."""
    is_gzip = not read_bytes and first.startswith(GZIP_MAGIC)
    chunks = decompress(stream, first) if is_gzip else read_plain(stream, first)
    end_bytes = max(read_bytes - 1, 0)
    for number, (texts, lengths, is_ended) in enumerate(_cut(chunks)):
        lines = Lines(texts, [0] * len(texts) if is_gzip else lengths, end_bytes)
        end_bytes += sum(lines.lengths)
        if number == 0 and read_bytes:
            _check_end(texts[0])
            lines = lines.without_first(1)
        elif number == 0:
            texts[0] = texts[0].removeprefix(BYTE_ORDER_MARK)
        if is_ended or _is_whole(lines, is_gzip=is_gzip):
            yield lines


def _is_whole(lines: Lines, *, is_gzip: bool) -> bool:
    """Return whether there is a last line that is complete without an end."""
    (text,) = lines.texts or (b"",)
    return bool(text) and (is_gzip or _is_object(text.decode(errors="surrogateescape")))


def check_gzip(stream: BinaryIO, max_bytes: int) -> None:
    """Check that a gzip file can be read to its end, and that its text is within the limit.

    Raises:
        FileDamaged: it is damaged, or has too much text.
    """
    first = stream.read(CHUNK_BYTES)
    if not first.startswith(GZIP_MAGIC):
        return
    text_bytes = 0
    for chunk in decompress(stream, first):
        text_bytes += len(chunk)
        if text_bytes > max_bytes:
            raise FileDamaged(
                f"The gzip has more than {max_bytes} bytes of text. Give its lines in smaller files, "
                "or raise `input.files.max_unpacked_bytes`"
            )


def _cut(chunks: Iterable[bytes]) -> Iterator[tuple[list[bytes], list[int], bool]]:
    """Yield the lines that each chunk completes, then the text after the last line feed.

    Only the start of a line beyond the limit is yielded, followed by text that is not JSON.

    Yields:
        texts without line feeds, their lengths with them, and whether there are any.
    """
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        length += len(first)
        if length <= MAX_LINE_BYTES:
            parts.append(first)
        if rest:
            last = rest.pop()
            lengths = [length + 1, *(len(line) + 1 for line in rest)]
            if max(lengths) > MAX_LINE_BYTES:
                rest = [_join([line], len(line)) for line in rest]
            yield [_join(parts, length), *rest], lengths, True
            parts, length = [last], len(last)
    yield [_join(parts, length)], [length], False


def _join(parts: list[bytes], length: int) -> bytes:
    text = b"".join(parts)
    if length <= MAX_LINE_BYTES:
        return text
    return (
        text[:_SHOWN_BYTES] + f"... (the line has {length} bytes, and the limit is {MAX_LINE_BYTES})".encode()
    )


def _check_end(text: bytes) -> None:
    """Check the bytes between the last byte that was read and the next line feed.

    They include the last byte if the last read line was a complete object without an end.
    """
    if text[1:].strip():
        raise FileDamaged("The line that was read last continues, or is another one")


def _is_object(line: str) -> bool:
    try:
        return isinstance(load_json(line.strip()), dict)
    except ValueError:
        return False
