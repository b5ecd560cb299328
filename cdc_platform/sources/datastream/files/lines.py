"""Lines of text files, plain or gzip; from a damaged gzip, the part before the damage is read."""

from collections.abc import Iterator
from typing import BinaryIO, Final

from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS
from cdc_platform.sources.text_files import CHUNK_BYTES, FileDamaged, read_chunks

_SHOWN_BYTES: Final = 200


def read_blocks(
    stream: BinaryIO, max_line_bytes: int = DEFAULT_BOUNDS.max_block_bytes
) -> Iterator[list[bytes]]:
    """Yield the lines of a stream that are not blank, without line ends, many at a time.

    For a line that spans several chunks and exceeds the limit, it yields the beginning, after a description
    of the problem.

    Raises:
        FileDamaged: a gzip ends too early, or is invalid from some place on.
    """
    rest, size_bytes = _Line(max_line_bytes), 0
    lines: list[bytes] = []
    damage: FileDamaged | None = None
    try:
        # A gzip file with many members may give one line per chunk.
        for chunk in read_chunks(stream):
            first, *further = chunk.split(b"\n")
            rest.add(first)
            if further:
                lines += _without_line_ends([rest.take(), *further[:-1]])
                rest.add(further[-1])
            size_bytes += len(chunk)
            if size_bytes >= CHUNK_BYTES:
                yield lines
                lines, size_bytes = [], 0
    except FileDamaged as error:
        damage = error
    yield lines if damage is not None else [*lines, *_without_line_ends([rest.take()])]
    if damage is not None:
        raise damage


class LongLine(bytes):
    """The beginning of a line that is too long, after a description of the problem, its ``problem``."""

    problem: str

    @classmethod
    def of(cls, problem: str, beginning: bytes) -> "LongLine":
        """Return a line with its problem, and with its beginning as content."""
        line = cls(f"{problem}: ".encode() + beginning)
        line.problem = problem
        return line


class _Line:
    """A line that arrives in parts."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._parts, self._size_bytes = max_bytes, list[bytes](), 0

    def add(self, part: bytes) -> None:
        """Add the next part; only the beginning of a line that is too long is kept."""
        self._size_bytes += len(part)
        if self._size_bytes <= self._max_bytes:
            self._parts.append(part)
        else:
            self._parts = [b"".join([*self._parts[:1], part])[:_SHOWN_BYTES]]

    def take(self) -> bytes:
        """Return the line, and begin the next one."""
        line, size_bytes = b"".join(self._parts), self._size_bytes
        self._parts, self._size_bytes = [], 0
        if size_bytes <= self._max_bytes:
            return line
        return LongLine.of(f"{size_bytes} bytes, more than `max_block_bytes`, {self._max_bytes}", line)


def _without_line_ends(lines: list[bytes]) -> list[bytes]:
    return [line.removesuffix(b"\r") if line.endswith(b"\r") else line for line in lines if line.strip()]
