"""The lines of a file of messages, plain or gzip."""

import gzip
import zlib
from typing import Final

_GZIP_MAGIC: Final = b"\x1f\x8b"


class FileDamaged(ValueError):
    """A gzip ends too early, or is none from some place on."""


def whole_lines(data: bytes) -> list[str]:
    """Return the whole lines of a file; one that is still being written has no end yet.

    A line ends with a line feed and nothing else: texts in JSON may have any other separator of lines.

    Raises:
        FileDamaged: the file is a gzip that cannot be read to its end.
    """
    is_gzip = data.startswith(_GZIP_MAGIC)
    *lines, rest = (_unpack(data) if is_gzip else data).decode(errors="surrogateescape").split("\n")
    return [*lines, rest] if is_gzip and rest else lines


def _unpack(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise FileDamaged(f"The gzip cannot be read to its end ({error})") from error
