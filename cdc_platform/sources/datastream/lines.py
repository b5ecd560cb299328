"""Lines of text files, plain or gzip; a damaged gzip gives what is before its damage."""

import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

GZIP_MAGIC: Final = b"\x1f\x8b"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
CHUNK_BYTES: Final = 1 << 18
_GZIP_WBITS: Final = zlib.MAX_WBITS | 16


class FileDamaged(ValueError):
    """The file cannot be read to its end; the reason says why."""


def read_blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of a stream that have anything but space, without the ends of lines, many at a time.

    Raises:
        FileDamaged: A gzip ends too early or is no gzip from some place on.
    """
    rest, size_bytes = b"", 0
    gathered: list[bytes] = []
    damage: FileDamaged | None = None
    try:
        # Of a gzip with many members each chunk may be a line.
        for chunk in read_chunks(stream):
            *lines, rest = (rest + chunk).split(b"\n")
            gathered += _told(lines)
            size_bytes += len(chunk)
            if size_bytes >= CHUNK_BYTES:
                yield gathered
                gathered, size_bytes = [], 0
    except FileDamaged as error:
        damage = error
    yield gathered if damage is not None else [*gathered, *_told([rest])]
    if damage is not None:
        raise damage


def _told(lines: list[bytes]) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in lines if line.strip()]


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the text of a stream in pieces, without compression and byte order mark.

    Raises:
        FileDamaged: A gzip ends too early or is no gzip from some place on.
    """
    first = stream.read(CHUNK_BYTES)
    chunks = _decompressed(stream, first) if first.startswith(GZIP_MAGIC) else _plain(stream, first)
    yield next(chunks, b"").removeprefix(BYTE_ORDER_MARK)
    yield from chunks


def _plain(stream: BinaryIO, chunk: bytes) -> Iterator[bytes]:
    while chunk:
        yield chunk
        chunk = stream.read(CHUNK_BYTES)


def _decompressed(stream: BinaryIO, chunk: bytes) -> Iterator[bytes]:
    """Yield the text of a gzip, which may have several members."""
    member = zlib.decompressobj(_GZIP_WBITS)
    is_begun = True
    while chunk:
        try:
            text = member.decompress(chunk, CHUNK_BYTES)
        except zlib.error as error:
            raise FileDamaged(f"It is no gzip from some place on ({error})") from error
        if text:
            yield text
        chunk = member.unconsumed_tail or member.unused_data or stream.read(CHUNK_BYTES)
        is_begun = not member.eof
        if member.eof and chunk:
            member = zlib.decompressobj(_GZIP_WBITS)
            is_begun = True
    if is_begun:
        raise FileDamaged("The gzip ends too early")
