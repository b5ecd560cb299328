"""The lines of a file of messages, plain or gzip."""

from io import BytesIO
from typing import Final

from cdc_platform.sources.debezium.wire.messages import load_json
from cdc_platform.sources.text_files import BYTE_ORDER_MARK, GZIP_MAGIC, FileDamaged, read_chunks

MOST_UNPACKED_BYTES: Final = 1024**3
"""The text of a file is held in memory."""


def whole_lines(data: bytes, most_bytes: int = MOST_UNPACKED_BYTES) -> list[str]:
    """Return the whole lines of a file; one that is still being written has no end yet.

    A line ends with a line feed and nothing else: texts in JSON may have any other separator of lines. The
    last one needs no end where it is a whole object, of which no beginning is one.

    Raises:
        FileDamaged: the file is a gzip that cannot be read to its end, or has more bytes than the bound.
    """
    is_gzip = data.startswith(GZIP_MAGIC)
    text = _unpack(data, most_bytes) if is_gzip else data.removeprefix(BYTE_ORDER_MARK)
    *lines, rest = text.decode(errors="surrogateescape").split("\n")
    return [*lines, rest] if rest and (is_gzip or _is_object(rest)) else lines


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
