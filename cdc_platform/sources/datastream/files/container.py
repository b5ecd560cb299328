"""Reader of Avro container files by blocks, which returns the records before any damage."""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Final

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
_HEADER: Final = parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": SYNC_BYTES}},
        ],
    }
)
_XZ_BYTES: Final = 256 * 1024**2
"""Memory for decompression; the highest compression level needs 65 MiB."""
_CODECS: Final[Mapping[str, Callable[[], Any] | None]] = {
    "null": None,
    "deflate": lambda: zlib.decompressobj(-zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_BYTES),
}
DAMAGE: Final = (
    *(EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError),
    *(RecursionError, struct.error),
    *(zlib.error, lzma.LZMAError, OSError, SchemaParseException),
)
"""Errors that Avro's library, or that of its codec, raises for a damaged file."""
_MAX_VARINT_BYTES: Final = 10
_GOES_ON: Final = b"\x80"


class AvroDamaged(ValueError):
    """The file is not a complete Avro file; the text states where it ends or what is damaged."""


@dataclass(frozen=True)
class Header:
    """Schema, codec and synchronisation marker of a file."""

    schema: str
    codec: str
    sync: bytes


@dataclass(frozen=True)
class AvroBlock:
    """Consecutive records of a file; `damage` is the reason why there may be fewer than `count` of them."""

    count: int
    records: bytes
    damage: str | None = None


def read_header(stream: BinaryIO) -> Header:
    """Read the header of a file, up to its first block.

    Raises:
        AvroDamaged: The file has no complete header, or an unknown compression.
    """
    try:
        fields: Any = schemaless_reader(stream, _HEADER, None)
        header = Header(
            fields["meta"]["avro.schema"].decode(),
            fields["meta"].get("avro.codec", b"null").decode(),
            fields["sync"],
        )
    except DAMAGE as error:
        raise AvroDamaged(f"Its header cannot be read ({describe_damage(error)})") from error
    if header.codec not in _CODECS:
        raise AvroDamaged(f"Its codec is {header.codec}; those that are known are {', '.join(_CODECS)}")
    return header


_BEYOND_BYTES: Final = 2**62
"""More bytes than any file has; streams cannot read more at once."""


def read_blocks(stream: BinaryIO, header: Header, max_bytes: int) -> Iterator[AvroBlock]:
    """Yield the blocks of a file after its header; the last block of a damaged file reports the damage.

    A block of more than ``max_bytes`` decompressed bytes counts as damage.
    """
    while (count := _read_long(stream)) is not None:
        size = _read_long(stream)
        if size is None or count < 0 or not 0 <= size < _BEYOND_BYTES:
            problem = "it ends within the head of a block" if size is None else "a block's size is none"
            yield AvroBlock(0, b"", problem)
            return
        block = _block(stream, header, count, size, max_bytes)
        yield block
        if block.damage is not None:
            return


def _block(stream: BinaryIO, header: Header, count: int, size: int, max_bytes: int) -> AvroBlock:
    content = stream.read(size)
    sync = stream.read(SYNC_BYTES)
    damage = None
    if len(content) < size:
        damage = f"it ends within a block, {size - len(content)} bytes too early"
    elif not header.sync.startswith(sync):
        return AvroBlock(0, b"", "the marker behind a block is not that of the file")
    elif len(sync) < SYNC_BYTES:
        damage = "it ends within the marker behind a block"
    try:
        return AvroBlock(count, _decompress(header.codec, content, max_bytes), damage)
    except DAMAGE as error:
        return AvroBlock(count, b"", damage or f"a block cannot be decompressed ({describe_damage(error)})")


def _decompress(codec: str, data: bytes, max_bytes: int) -> bytes:
    make = _CODECS[codec]
    if make is None:
        return data
    decompressor = make()
    content: bytes = decompressor.decompress(data, max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes} bytes; see the setting `max_block_bytes`")
    if not decompressor.eof:
        raise EOFError("its compressed bytes end too early")
    return content


def _read_long(stream: BinaryIO) -> int | None:
    """Return Avro's variable number; None at the end of the file, or if it ends within the number."""
    number = 0
    for place in range(_MAX_VARINT_BYTES):
        byte = stream.read(1)
        if not byte:
            return None if place == 0 else -1
        number |= (byte[0] & 0x7F) << (7 * place)
        if byte[0] < 0x80:  # noqa: PLR2004 - the bit that says that more bytes follow
            break
    return (number >> 1) ^ -(number & 1)


@dataclass(frozen=True)
class RecordStorage:
    """Storage of records.

    Args:
        schema: the schema parsed by Avro's library.
        max_values: maximum number of values of a record.
        empty_in_items: values without bytes in each value of an array or a map.
    """

    schema: Any
    max_values: int
    empty_in_items: int = 0

    def stream(self, data: bytes) -> BytesIO:
        """Return a stream for reading records, which counts reads if records may have too many values."""
        max_reads = self.max_values // (1 + self.empty_in_items)
        return BytesIO(data) if len(data) <= max_reads else _CountedReads(data, max_reads, self.max_values)


class _CountedReads(BytesIO):
    """Stream of a block's bytes that counts the values that were read since the last record."""

    def __init__(self, data: bytes, max_reads: int, max_values: int) -> None:
        super().__init__(data)
        self._max_reads, self._max_values, self._reads = max_reads, max_values, 0

    def begin(self) -> None:
        """Begin another record."""
        self._reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            ValueError: a record has too many values.
        """
        data = super().read(size)
        # A byte with its highest bit set is a part of a number that continues.
        if size != 1 or data < _GOES_ON:
            self._reads += 1
            if self._reads > self._max_reads:
                raise ValueError(f"it has more than {self._max_values} values; see the setting `max_values`")
        return data


def records(block: AvroBlock, storage: RecordStorage) -> Iterator[tuple[Any, str | None]]:
    """Yield the records of a block, each with its problem; texts that are not Unicode are escaped.

    Raises:
        AvroDamaged: The block has fewer records than it states, or they do not match the schema.
    """
    stream = storage.stream(block.records)
    for ordinal in range(block.count):
        start = stream.tell()
        try:
            record = _record(stream, storage.schema)
            if stream.tell() == start:
                raise ValueError("it has no bytes, so the block could have endlessly many")
        except DAMAGE as error:
            raise AvroDamaged(
                block.damage or f"record {ordinal} of a block is damaged ({describe_damage(error)})"
            ) from error
        yield record
    if block.damage is not None or stream.tell() < len(block.records):
        raise AvroDamaged(block.damage or "a block is longer than its records")


def _record(stream: BytesIO, schema: Any) -> tuple[Any, str | None]:
    start = stream.tell()
    try:
        return _read(stream, schema, "strict"), None
    except UnicodeDecodeError as error:
        stream.seek(start)
        problem = f"The record is damaged: {describe_damage(error)}"
        return _read(stream, schema, "backslashreplace"), problem


def _read(stream: BytesIO, schema: Any, unicode_errors: str) -> Any:
    if isinstance(stream, _CountedReads):
        stream.begin()
    return schemaless_reader(stream, schema, None, handle_unicode_errors=unicode_errors)


def describe_damage(error: BaseException) -> str:
    """Describe the damage of a file without the terms of the libraries that read it."""
    if isinstance(error, UnicodeDecodeError):
        return f"a text is not UTF-8: its byte {error.start + 1} is {error.object[error.start]:#04x}"
    if isinstance(error, IndexError):
        return "it has a number for which its schema has no type or symbol"
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    is_plain = type(error) is ValueError and str(error)
    return str(error) if is_plain else f"{type(error).__name__}: {error}".removesuffix(": ")
