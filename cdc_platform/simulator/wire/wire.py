"""Protobuf values and result sets written as bytes, without a protobuf object for each value.

It is the counterpart of the reader's decoder: a thousand transactions per second have tens of thousands of
values, and each would cost a microsecond as a Python object.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

NULL: Final = b"\x08\x00"
TRUE: Final = b"\x20\x01"
FALSE: Final = b"\x20\x00"

Plain: TypeAlias = Any
"""A JSON value: text, number, boolean, None, or a list of these."""

_STRING: Final = b"\x1a"
_NUMBER: Final = b"\x11"
_LIST: Final = b"\x32"
_ITEM: Final = b"\x0a"
_METADATA: Final = b"\x0a"
_VALUE: Final = b"\x12"
_CHUNKED: Final = b"\x18\x01"
_RESUME_TOKEN: Final = b"\x22"
_DOUBLE: Final = struct.Struct("<d")
_SHORT_END: Final = 1 << 14
# Nearly all lengths take at most two bytes.
_SHORT: Final = tuple(
    bytes([number]) if number < 1 << 7 else bytes([number & 0x7F | 0x80, number >> 7])
    for number in range(_SHORT_END)
)


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits."""
    if number < _SHORT_END:
        return _SHORT[number]
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def string_value(text: str) -> bytes:
    """Return a text as a value."""
    data = text.encode()
    return _STRING + varint(len(data)) + data


def list_value(values: Iterable[bytes]) -> bytes:
    """Return values as one value, a list."""
    body = b"".join([_ITEM + varint(len(value)) + value for value in values])
    return _LIST + varint(len(body)) + body


def plain_value(plain: Plain) -> bytes:
    """Return any JSON value as a value."""
    if isinstance(plain, str):
        return string_value(plain)
    if plain is None:
        return NULL
    if isinstance(plain, bool):
        return TRUE if plain else FALSE
    if isinstance(plain, int | float):
        return _NUMBER + _DOUBLE.pack(plain)
    return list_value(map(plain_value, plain))


def partial_result_set(
    values: Iterable[bytes],
    *,
    metadata: bytes | None = None,
    is_chunked: bool = False,
    resume_token: bytes | None = None,
) -> bytes:
    """Return a `PartialResultSet`; if it is chunked, its last value continues in the next one."""
    parts = [] if metadata is None else [_METADATA, varint(len(metadata)), metadata]
    for value in values:
        parts += (_VALUE, varint(len(value)), value)
    if is_chunked:
        parts.append(_CHUNKED)
    if resume_token is not None:
        parts += (_RESUME_TOKEN, varint(len(resume_token)), resume_token)
    return b"".join(parts)


def result_set(rows: Iterable[Iterable[bytes]], metadata: bytes) -> bytes:
    """Return a `ResultSet`."""
    parts = [_METADATA, varint(len(metadata)), metadata]
    for row in rows:
        body = b"".join([_ITEM + varint(len(value)) + value for value in row])
        parts += (_VALUE, varint(len(body)), body)
    return b"".join(parts)
