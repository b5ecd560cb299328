"""The lines of a file of messages, plain or gzip."""

import gzip
import zlib
from typing import Final

from cdc_platform.sources.debezium.messages import load_json

_BYTE_ORDER_MARK: Final = "\ufeff"
_GZIP_MAGIC: Final = b"\x1f\x8b"


class FileDamaged(ValueError):
    """A gzip ends too early, or is none from some place on."""


def whole_lines(data: bytes) -> list[str]:
    """Return the whole lines of a file; one that is still being written has no end yet.

    A line ends with a line feed and nothing else: texts in JSON may have any other separator of lines. The
    last one needs no end where it is a whole object, of which no beginning is one.

    Raises:
        FileDamaged: the file is a gzip that cannot be read to its end.
    """
    is_gzip = data.startswith(_GZIP_MAGIC)
    text = (_unpack(data) if is_gzip else data).decode(errors="surrogateescape")
    *lines, rest = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    return [*lines, rest] if rest and (is_gzip or _is_object(rest)) else lines


def _is_object(line: str) -> bool:
    try:
        return isinstance(load_json(line.strip()), dict)
    except ValueError:
        return False


def _unpack(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise FileDamaged(f"The gzip cannot be read to its end ({error})") from error
