"""The lines of a file of messages, plain or gzip."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from cdc_platform.sources.debezium.wire.messages import load_json
from cdc_platform.sources.text_files import BYTE_ORDER_MARK, GZIP_MAGIC, FileDamaged, read_chunks

MOST_UNPACKED_BYTES: Final = 1024**3
"""The text of a file is held in memory."""


@dataclass(frozen=True)
class FileLines:
    """Whole lines of a file; one that is still being written has no end yet.

    A line ends with a line feed and nothing else: texts in JSON may have any other separator of lines. The
    last one needs no end where it is a whole object, of which no beginning is one.

    Args:
        lines: without their ends.
        is_ended: whether the last one has its end.
        begin: byte of the file at which the first one begins; None in a gzip, which appears whole.
        read_bytes: so many bytes were read before.
    """

    lines: Sequence[str]
    is_ended: bool
    begin: int | None
    read_bytes: int = 0

    def end_of(self, count: int) -> int:
        """Return how many bytes have been read with so many of the lines, 0 in a gzip."""
        if self.begin is None or not count:
            return self.read_bytes
        first = self.lines[:count]
        lacks_end = count == len(self.lines) and not self.is_ended
        return self.begin + sum(len(_encoded(line)) + 1 for line in first) - lacks_end


def whole_lines(data: bytes, most_bytes: int = MOST_UNPACKED_BYTES) -> FileLines:
    """Return the whole lines of a file.

    Raises:
        FileDamaged: the file is a gzip that cannot be read to its end, or has more bytes than the bound.
    """
    if data.startswith(GZIP_MAGIC):
        *lines, rest = _decoded(_unpack(data, most_bytes)).split("\n")
        return FileLines([*lines, rest] if rest else lines, is_ended=not rest, begin=None)
    text = data.removeprefix(BYTE_ORDER_MARK)
    return _growing(text, len(data) - len(text))


def further_lines(data: bytes, read_bytes: int) -> FileLines:
    """Return the whole lines that a file has got since some of it was read.

    Args:
        data: the file from the last byte on that was read.
        read_bytes: so many bytes were read.

    Raises:
        FileDamaged: no line ends there.
    """
    text = data[1:]
    if not data.startswith(b"\n"):
        # What was read last was a whole object without an end.
        before, _, text = text.partition(b"\n")
        if before.strip():
            raise FileDamaged("The line that was read last goes on, or is another one")
    return _growing(text, read_bytes + len(data) - 1 - len(text), read_bytes)


def _growing(text: bytes, begin: int, read_bytes: int = 0) -> FileLines:
    *lines, rest = _decoded(text).split("\n")
    is_ended = not _is_object(rest)
    return FileLines(lines if is_ended else [*lines, rest], is_ended, begin, read_bytes)


def _decoded(text: bytes | bytearray) -> str:
    return text.decode(errors="surrogateescape")


def _encoded(line: str) -> bytes:
    return line.encode(errors="surrogateescape")


def _is_object(line: str) -> bool:
    try:
        return isinstance(load_json(line.strip()), dict)
    except ValueError:
        return False


def _unpack(data: bytes, most_bytes: int) -> bytearray:
    content = bytearray()
    for chunk in read_chunks(BytesIO(data)):
        content += chunk
        if len(content) > most_bytes:
            raise FileDamaged(
                f"The gzip has more than {most_bytes} bytes of text. Give its lines in smaller files, "
                "or raise `input.files.most_unpacked_bytes`"
            )
    return content
