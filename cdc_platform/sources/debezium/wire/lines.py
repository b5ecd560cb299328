"""Lines of a file of messages, plain or gzip."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

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
_LINE_FEED: Final = ord("\n")


class Line(NamedTuple):
    """A complete line of a file, without its end; a line that is still being written does not count.

    Only a line feed ends a line: strings in JSON may contain any other line separator. The last line needs no
    end if it is a complete object, because no prefix of an object is one.
    """

    text: bytes
    read_bytes: int
    """Bytes of the file up to its end; 0 in a gzip file, which appears whole."""


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file that one chunk of it completes; they are parted only where that is needed.

    Args:
        text: their text, with the line feed of each; the last line of a file may lack it.
        begun_bytes: offset of the first one in the file; 0 in a gzip.
        left_out_bytes: bytes of the first one in the file that its text lacks.
        is_gzip: whether their places in the file have no meaning.
    """

    text: bytes
    begun_bytes: int
    left_out_bytes: int = 0
    is_gzip: bool = False

    def __len__(self) -> int:
        """Return the number of lines."""
        is_open = bool(self.text) and not self.text.endswith(b"\n")
        return int(np.count_nonzero(self._feeds)) + is_open

    @property
    def _feeds(self) -> npt.NDArray[np.bool_]:
        """Whether a byte of the text is a line feed."""
        feeds: npt.NDArray[np.bool_] = np.frombuffer(self.text, np.uint8) == _LINE_FEED
        return feeds

    @property
    def end_bytes(self) -> int:
        """Offset of their end in the file; 0 in a gzip."""
        return 0 if self.is_gzip else self.begun_bytes + self.left_out_bytes + len(self.text)

    @property
    def last(self) -> Line:
        """The last line."""
        end = len(self.text) - self.text.endswith(b"\n")
        return Line(self.text[self.text.rfind(b"\n", 0, end) + 1 : end], self.end_bytes)

    @cached_property
    def texts(self) -> Sequence[bytes]:
        """The text of each line, without its line feed."""
        texts = self.text.split(b"\n")
        return texts if texts[-1] else texts[:-1]

    def one_by_one(self) -> Iterator[Line]:
        """Yield each line with the byte at which it ends."""
        begun_bytes = self.begun_bytes + self.left_out_bytes
        ends = np.append(np.flatnonzero(self._feeds) + begun_bytes + 1, self.end_bytes)[: len(self.texts)]
        is_long = len(self.text) > MAX_LINE_BYTES
        texts = (_join([text], len(text)) for text in self.texts) if is_long else self.texts
        return map(Line, texts, np.zeros_like(ends).tolist() if self.is_gzip else ends.tolist())

    def without_first(self, lines: int) -> "Lines":
        """Return the lines without a number of first lines."""
        if not lines:
            return self
        rest = b"\n".join(self.text.split(b"\n", lines)[lines:])
        return replace(self, text=rest, begun_bytes=self.end_bytes - len(rest), left_out_bytes=0)


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
    begin = b""
    for chunk in chunks:
        begin += chunk
        if len(begin) >= len(BYTE_ORDER_MARK):
            break
    if read_bytes and not begin:
        return  # it was cut after it was listed; the next listing shows that
    text = begin if read_bytes else begin.removeprefix(BYTE_ORDER_MARK)
    end_bytes = max(read_bytes - 1, 0) + len(begin) - len(text)
    for number, (part, left_out_bytes, is_ended) in enumerate(_cut(chain((text,), chunks))):
        lines = Lines(part, end_bytes, left_out_bytes, is_gzip)
        end_bytes = lines.end_bytes
        if number == 0 and read_bytes:
            _check_end(lines.texts[0])
            lines = lines.without_first(1)
        # A last line may be complete without an end.
        if is_ended or (lines.text and (is_gzip or _is_object(lines.text.decode(errors="surrogateescape")))):
            yield lines


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


def _cut(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, int, bool]]:
    """Yield the lines that each chunk completes, then the text after the last line feed.

    Only the start of a line beyond the limit is yielded, followed by text that is not JSON.

    Yields:
        text of lines with their line feeds, the bytes that the first one lacks, and whether all are ended.
    """
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        first_end, end = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
        first = chunk[:first_end] if end else chunk
        length += len(first)
        if length <= MAX_LINE_BYTES:
            parts.append(first)
        if end:
            text = _join(parts, length)
            yield b"".join((text, memoryview(chunk)[first_end:end])), length - len(text), True
            parts, length = [chunk[end:]], len(chunk) - end
    text = _join(parts, length)
    yield text, length - len(text), False


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
