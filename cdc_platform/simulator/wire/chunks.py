"""Rows as messages of a streaming call: many small rows per message, or one large value in many messages."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.wire import partial_result_set

MESSAGE_BYTES: Final = 256 * 1024
"""Approximate size of a message of small rows."""

_LARGEST_CHARACTER: Final = 4
_CONTINUES, _CONTINUATION = 0xC0, 0x80


class Cursor(NamedTuple):
    """Progress of a query: everything before a time, and a number of rows at that time."""

    micros: int
    rows: int

    def to_token(self) -> bytes:
        """Return the position as a resume token."""
        return json.dumps([self.micros, self.rows]).encode()

    @classmethod
    def from_token(cls, token: bytes) -> "Cursor":
        """Return the position of a resume token."""
        try:
            micros, rows = json.loads(token)
            return cls(int(micros), int(rows))
        except (ValueError, TypeError) as error:
            raise Refusal("INVALID_ARGUMENT", f"Invalid resume token: {token!r}") from error


class Row(NamedTuple):
    """The values of a row, and the position after it."""

    values: tuple[bytes, ...]
    position: Cursor | None


def messages(
    metadata: bytes, batches: Iterable[Iterable[Row]], chunk_bytes: int, *, has_tokens: bool = True
) -> Iterator[bytes]:
    """Yield the messages of a query: the metadata at once, and each batch of rows without delay."""
    yield partial_result_set((), metadata=metadata)
    for batch in batches:
        pending: list[Row] = []
        size = 0
        for row in batch:
            row_bytes = sum(map(len, row.values))
            if row_bytes > chunk_bytes:
                yield from _together(pending, has_tokens=has_tokens)
                yield from _write_chunks(row, chunk_bytes, has_tokens=has_tokens)
                pending, size = [], 0
                continue
            pending.append(row)
            size += row_bytes
            if size >= MESSAGE_BYTES:
                yield from _together(pending, has_tokens=has_tokens)
                pending, size = [], 0
        yield from _together(pending, has_tokens=has_tokens)


def split_value(value: bytes, limit_bytes: int) -> list[bytes]:
    """Return the chunks of a value, which Spanner's rules merge into the value again."""
    from google.protobuf.struct_pb2 import Value  # type: ignore[import-untyped] # ships no types

    return [chunk.SerializeToString() for chunk in _split(Value.FromString(value), limit_bytes, limit_bytes)]


def _together(rows: list[Row], *, has_tokens: bool) -> Iterator[bytes]:
    if rows:
        token = _token(rows[-1], has_tokens=has_tokens)
        yield partial_result_set([value for row in rows for value in row.values], resume_token=token)


def _token(row: Row, *, has_tokens: bool) -> bytes | None:
    return row.position.to_token() if has_tokens and row.position is not None else None


def _write_chunks(row: Row, chunk_bytes: int, *, has_tokens: bool) -> Iterator[bytes]:
    last = len(row.values) - 1
    for position, value in enumerate(row.values):
        chunks = split_value(value, chunk_bytes) if len(value) > chunk_bytes else [value]
        for number, chunk in enumerate(chunks, start=1):
            is_whole = number == len(chunks)
            token = _token(row, has_tokens=has_tokens and is_whole and position == last)
            yield partial_result_set((chunk,), is_chunked=not is_whole, resume_token=token)


def _split(value: Any, room_bytes: int, limit_bytes: int) -> list[Any]:
    """Return the chunks of a value, the first of which fits the remaining room.

    A list is only divided within a text or a list, because readers join the adjacent values at a cut.
    """
    from google.protobuf.struct_pb2 import Value

    if value.HasField("string_value"):
        parts = _split_text(value.string_value.encode(), room_bytes, limit_bytes)
        return [Value(string_value=part.decode()) for part in parts]
    chunks, room = [_empty_list()], room_bytes
    for item in value.list_value.values:
        size = item.ByteSize()
        if size <= room or not (item.HasField("string_value") or item.HasField("list_value")):
            chunks[-1].list_value.values.append(item)
            room -= size
            continue
        first, *rest = _split(item, max(room, 1), limit_bytes)
        chunks[-1].list_value.values.append(first)
        for part in rest:
            chunks.append(_empty_list())
            chunks[-1].list_value.values.append(part)
            room = limit_bytes - part.ByteSize()
    return chunks


def _split_text(text: bytes, room_bytes: int, limit_bytes: int) -> list[bytes]:
    """Return the parts of a text, divided only between characters."""
    parts, begin, room = [], 0, room_bytes
    while len(text) - begin > room:
        end = begin + room
        while end > begin and text[end] & _CONTINUES == _CONTINUATION:
            end -= 1
        parts.append(text[begin:end])
        begin, room = end, max(limit_bytes, _LARGEST_CHARACTER)
    return [*parts, text[begin:]]


def _empty_list() -> Any:
    from google.protobuf.struct_pb2 import Value

    value = Value()
    value.list_value.SetInParent()
    return value
