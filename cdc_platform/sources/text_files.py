"""Text of files, plain or gzip; from a damaged gzip, the part before the damage is read."""

import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

GZIP_MAGIC: Final = b"\x1f\x8b"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
CHUNK_BYTES: Final = 1 << 18
_GZIP_WBITS: Final = zlib.MAX_WBITS | 16


class FileDamaged(ValueError):
    """The file cannot be read to its end; the message contains the reason."""


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the text of a stream in chunks, without compression and byte order mark.

    Raises:
        FileDamaged: a gzip ends too early, or is invalid from some place on.
    """
    first = stream.read(CHUNK_BYTES)
    chunks = decompress(stream, first) if first.startswith(GZIP_MAGIC) else read_plain(stream, first)
    yield next(chunks, b"").removeprefix(BYTE_ORDER_MARK)
    yield from chunks


def read_plain(stream: BinaryIO, chunk: bytes) -> Iterator[bytes]:
    """Yield the first chunk of a stream, and all following ones."""
    while chunk:
        yield chunk
        chunk = stream.read(CHUNK_BYTES)


def decompress(stream: BinaryIO, chunk: bytes) -> Iterator[bytes]:
    """Yield the text of a gzip whose first chunk was read; it may have several members with zeros after them.

    Raises:
        FileDamaged: the gzip ends too early, or is invalid from some place on.
    """
    member = zlib.decompressobj(_GZIP_WBITS)
    while chunk:
        try:
            text = member.decompress(chunk, CHUNK_BYTES)
        except zlib.error as error:
            raise FileDamaged(f"Its gzip data is damaged or incomplete ({error})") from error
        if text:
            yield text
        if member.eof:
            chunk = _after_member(stream, member.unused_data)
            if not chunk:
                return
            member = zlib.decompressobj(_GZIP_WBITS)
        else:
            chunk = member.unconsumed_tail or stream.read(CHUNK_BYTES)
    raise FileDamaged("The gzip ends too early")


def _after_member(stream: BinaryIO, chunk: bytes) -> bytes:
    """Return the beginning of the next member; devices with fixed block sizes leave zeros before it."""
    while not (rest := chunk.lstrip(b"\0")):
        chunk = stream.read(CHUNK_BYTES)
        if not chunk:
            break
    return rest
