"""Protobuf values read from their bytes, without a Python object for each of them.

A `google.protobuf.Value` costs almost a microsecond as a Python object, and a change record consists of
dozens. But the bytes of a `ListValue` are also those of a message with one repeated field of bytes: parsed
as such, a list of any values is one object, and each value in it is its tag, its length and its payload.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

NULL_TAG: Final = 0x08
NUMBER_TAG: Final = 0x11
STRING_TAG: Final = 0x1A
BOOL_TAG: Final = 0x20
LIST_TAG: Final = 0x32

_CONTINUES: Final = 0x80
_DOUBLE: Final = struct.Struct("<d")


def text(value: bytes) -> str | None:
    """Return the text of a value, or None for NULL.

    Raises:
        ValueError: The value is neither.
    """
    if value[0] == STRING_TAG:
        return (value[2:] if value[1] < _CONTINUES else _long_payload(value)).decode()
    if value[0] == NULL_TAG:
        return None
    raise _unexpected("a text", value)


def required_text(value: bytes) -> str:
    """Return the text of a value.

    Raises:
        ValueError: The value is not a text.
    """
    found = text(value)
    if found is None:
        raise _unexpected("a text", value)
    return found


def boolean(value: bytes) -> bool:
    """Return the truth of a value.

    Raises:
        ValueError: The value is not a boolean.
    """
    if value[0] != BOOL_TAG:
        raise _unexpected("a boolean", value)
    return value[1] == 1


def number(value: bytes) -> float:
    """Return a number; NaN and the infinities come as text.

    Raises:
        ValueError: The value is not a number.
    """
    if value[0] == NUMBER_TAG:
        return float(_DOUBLE.unpack_from(value, 1)[0])
    return float(required_text(value))


def is_null(value: bytes) -> bool:
    """Return whether the value is NULL."""
    return value[0] == NULL_TAG


def items(value: bytes) -> Sequence[bytes]:
    """Return the values in a list; none for NULL.

    Raises:
        ValueError: The value is not a list.
    """
    payload = _list_payload(value)
    values: Sequence[bytes] = message_class("Values").FromString(payload).values if payload else ()
    return values


def nested_items(value: bytes) -> Iterable[Sequence[bytes]]:
    """Return the values in the lists in a list, such as the fields of the structs in an array.

    Raises:
        ValueError: The value is not a list.
    """
    payload = _list_payload(value)
    if not payload:
        return ()
    return [inner.list.values for inner in message_class("Lists").FromString(payload).values]


@lru_cache(maxsize=8)
def message_class(name: str) -> Any:
    """Return the class of one of this module's messages, by its name.

    `Values` is a list of values; `Lists` is a list of lists of values; `Rows` is Spanner's
    `PartialResultSet`, of which it keeps metadata and values as bytes.
    """
    from google.protobuf import message_factory  # type: ignore[import-untyped] # ships no types

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"cdc_platform.{name}"))


@lru_cache(maxsize=1)
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    file = descriptor_pb2.FileDescriptorProto(
        name="cdc_platform/wire.proto", package="cdc_platform", syntax="proto3"
    )
    values = file.message_type.add(name="Values")
    values.field.add(name="values", number=1, type=field.TYPE_BYTES, label=many)
    inner = file.message_type.add(name="Inner")
    inner.field.add(
        name="list", number=6, type=field.TYPE_MESSAGE, label=one, type_name=".cdc_platform.Values"
    )
    lists = file.message_type.add(name="Lists")
    lists.field.add(
        name="values", number=1, type=field.TYPE_MESSAGE, label=many, type_name=".cdc_platform.Inner"
    )
    rows = file.message_type.add(name="Rows")
    rows.field.add(name="metadata", number=1, type=field.TYPE_BYTES, label=one)
    rows.field.add(name="values", number=2, type=field.TYPE_BYTES, label=many)
    rows.field.add(name="chunked_value", number=3, type=field.TYPE_BOOL, label=one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _list_payload(value: bytes) -> bytes:
    if value[0] == LIST_TAG:
        return value[2:] if value[1] < _CONTINUES else _long_payload(value)
    if value[0] == NULL_TAG:
        return b""
    raise _unexpected("a list", value)


def _long_payload(value: bytes) -> bytes:
    last = 1
    while value[last] >= _CONTINUES:
        last += 1
    return value[last + 1 :]


def _unexpected(expected: str, value: bytes) -> ValueError:
    return ValueError(f"{expected} was expected, not the value {value[:40]!r}")
