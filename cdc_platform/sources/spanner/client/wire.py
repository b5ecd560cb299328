"""Protobuf values decoded from their bytes, without a protobuf object for each value.

A `google.protobuf.Value` costs almost a microsecond as a Python object, and a change record consists of
dozens. Its wire format is simple: a tag, and for texts and lists a length and that many bytes. A list is a
sequence of such values, each after the tag of the list's only field and its length.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cdc_platform.model.base.decoding_errors import MALFORMED

NULL_TAG: Final = 0x08
NUMBER_TAG: Final = 0x11
STRING_TAG: Final = 0x1A
BOOL_TAG: Final = 0x20
LIST_TAG: Final = 0x32
CONTINUES: Final = 0x80
"""A byte of an integer with this bit set is not its last one."""

MISSHAPEN: Final = (*MALFORMED, SyntaxError, MemoryError, struct.error)
"""Errors that decoders, including Arrow's, raise for a value of an undocumented shape."""

_MAX_BITS: Final = 64
_DOUBLE: Final = struct.Struct("<d")


def text(value: bytes) -> str | None:
    """Return the text of a value, or None for NULL.

    Raises:
        ValueError: the value is neither.
    """
    content = text_bytes(value)
    return None if content is None else content.decode()


def text_bytes(value: bytes) -> bytes | None:
    """Return the UTF-8 of a text, which is not validated, or None for NULL.

    Raises:
        ValueError: the value is neither.
    """
    if value[0] == STRING_TAG:
        return value[2:] if value[1] < CONTINUES else value[_payload_start(value) :]
    if value[0] == NULL_TAG:
        return None
    raise _unexpected_value("a text", value)


def required_text(value: bytes) -> str:
    """Return the text of a value.

    Raises:
        ValueError: the value is not a text.
    """
    content = text(value)
    if content is None:
        raise _unexpected_value("a text", value)
    return content


def boolean(value: bytes) -> bool:
    """Return a boolean value.

    Raises:
        ValueError: the value is not a boolean.
    """
    if value[0] != BOOL_TAG:
        raise _unexpected_value("a boolean", value)
    return value[1] == 1


def number(value: bytes) -> float:
    """Return a number value as a float; NaN and the infinities come as texts.

    Raises:
        ValueError: the value is not a number.
    """
    if value[0] == NUMBER_TAG:
        return float(_DOUBLE.unpack_from(value, 1)[0])
    return float(required_text(value))


def plain_value(value: bytes) -> Any:
    """Return a value of any kind: a text, a number, a boolean, None, or a list of these.

    Raises:
        ValueError: query results do not have values of this kind.
    """
    if value[0] == LIST_TAG:
        return [plain_value(item) for item in items(value)]
    if value[0] == BOOL_TAG:
        return boolean(value)
    return number(value) if value[0] == NUMBER_TAG else text(value)


def is_null(value: bytes) -> bool:
    """Return whether the value is NULL."""
    return value[0] == NULL_TAG


def items(value: bytes) -> list[bytes]:
    """Return the values in a list; none for NULL.

    Raises:
        ValueError: the value is not a list, or is incomplete.
    """
    if value[0] != LIST_TAG:
        if value[0] == NULL_TAG:
            return []
        raise _unexpected_value("a list", value)
    elements = []
    position, end = _payload_start(value), len(value)
    while position < end:
        length = value[position + 1]
        position += 2
        if length >= CONTINUES:
            length, position = integer(value, position - 1)
        elements.append(value[position : position + length])
        position += length
    if position != end:
        raise _unexpected_value("a whole list", value)
    return elements


def integer(value: bytes, position: int) -> tuple[int, int]:
    """Return the integer at the position, seven bits per byte, and the position after it.

    Raises:
        ValueError: the integer is too long.
        IndexError: the integer does not end.
    """
    byte = value[position]
    position += 1
    if byte < CONTINUES:
        return byte, position
    number, shift = byte & 0x7F, 7
    while shift <= _MAX_BITS:
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < CONTINUES:
            return number, position
        shift += 7
    raise ValueError("an integer has more than 64 bits")


@lru_cache(maxsize=1)
def rows_parser() -> Callable[[bytes], Any]:
    """Return a parser of `PartialResultSet` whose metadata and values stay bytes."""
    from google.protobuf import (  # type: ignore[import-untyped] # ships no types
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="cdc_platform/rows.proto", package="cdc_platform", syntax="proto3"
    )
    rows = file.message_type.add(name="Rows")
    rows.field.add(name="metadata", number=1, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    rows.field.add(name="values", number=2, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
    rows.field.add(name="chunked_value", number=3, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    rows.field.add(name="resume_token", number=4, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("cdc_platform.Rows"))
    parse: Callable[[bytes], Any] = message_class.FromString
    return parse


def _payload_start(value: bytes) -> int:
    start = 2
    while value[start - 1] >= CONTINUES:
        start += 1
    return start


def _unexpected_value(expected: str, value: bytes) -> ValueError:
    return ValueError(f"{expected} was expected, not the value {value[:40]!r}")
