"""The lines of a file of messages, plain or gzip."""

import gzip
import zlib
from io import BytesIO
from typing import Final

from cdc_platform.sources.debezium.wire.messages import load_json

_BYTE_ORDER_MARK: Final = "\ufeff"
_GZIP_MAGIC: Final = b"\x1f\x8b"
MOST_UNPACKED_BYTES: Final = 1024**3
"""The text of a file is held in memory."""


class FileDamaged(ValueError):
    """A gzip ends too early, or is none from some place on."""


def whole_lines(data: bytes, most_bytes: int = MOST_UNPACKED_BYTES) -> list[str]:
    """Return the whole lines of a file; one that is still being written has no end yet.

    A line ends with a line feed and nothing else: texts in JSON may have any other separator of lines. The
    last one needs no end where it is a whole object, of which no beginning is one.

    Raises:
        FileDamaged: the file is a gzip that cannot be read to its end, or has more bytes than the bound.
    """
    is_gzip = data.startswith(_GZIP_MAGIC)
    text = (_unpack(data, most_bytes) if is_gzip else data).decode(errors="surrogateescape")
    *lines, rest = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    return [*lines, rest] if rest and (is_gzip or _is_object(rest)) else lines


def _is_object(line: str) -> bool:
    try:
        return isinstance(load_json(line.strip()), dict)
    except ValueError:
        return False


def _unpack(data: bytes, most_bytes: int) -> bytes:
    try:
        with gzip.open(BytesIO(data)) as opened:
            found = opened.read(most_bytes + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise FileDamaged(f"The gzip cannot be read to its end ({error})") from error
    if len(found) > most_bytes:
        raise FileDamaged(
            f"The gzip has more than {most_bytes} bytes of text. Give its lines in smaller files, or raise "
            "`input.files.most_unpacked_bytes`"
        )
    return found
