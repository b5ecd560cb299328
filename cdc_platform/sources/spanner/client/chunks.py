"""Rows of a streaming query, assembled from the chunks in its messages."""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, Final

from cdc_platform.errors import RecordUnreadable

_JOINED: Final = ("string_value", "list_value")
"""Kinds of values that may be divided into chunks."""


class RowAssembler:
    """Turns partial result sets into rows of values as bytes; a value may continue in the next message.

    ``fields`` has the names and types of the columns after the first message. ``resume_token`` resumes after
    the last row of the newest message with a token: it covers all rows returned before it changed.
    """

    def __init__(self) -> None:
        self.fields: Any = None
        self.resume_token = b""
        self._begun_row: list[bytes] = []
        self._chunks: list[bytes] = []

    def rows(self, messages: Iterable[Any]) -> Iterator[list[bytes]]:
        """Yield each row once it has its last value; the values are not decoded.

        Raises:
            RecordUnreadable: the stream ended within a row.
        """
        for values in self.values(messages):
            width = len(self.fields)
            for start in range(0, len(values), width):
                yield values[start : start + width]

    def values(self, messages: Iterable[Any]) -> Iterator[list[bytes]]:
        """Yield the values of all rows that end in a message as one list, row after row.

        Raises:
            RecordUnreadable: the stream ended within a row.
        """
        for message in messages:
            if self.fields is None and message.metadata:
                self.fields = _fields(message.metadata)
            if values := self._whole_rows(message):
                yield values
            if message.resume_token and not (self._begun_row or self._chunks):
                self.resume_token = message.resume_token
        if self._begun_row or self._chunks:
            raise RecordUnreadable("Spanner's answer ended in the middle of a row; read the window again")

    def _whole_rows(self, message: Any) -> list[bytes]:
        values = list(message.values)
        first_part = [values.pop()] if message.chunked_value and values else []
        if self._chunks and values:
            values[0] = merge_chunks(*self._chunks, values[0])
            self._chunks = []
        self._chunks += first_part
        if self._begun_row:
            values = self._begun_row + values
        begun_values = len(values) % len(self.fields) if self.fields else len(values)
        self._begun_row = values[len(values) - begun_values :]
        return values[: len(values) - begun_values] if begun_values else values


def merge_chunks(*chunks: bytes) -> bytes:
    """Return the value of chunks: texts and lists are joined, and so are adjacent items of lists.

    Raises:
        RecordUnreadable: a chunk is not a value, or chunks are not parts of one value.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # ships no types
    from google.protobuf.struct_pb2 import Value  # type: ignore[import-untyped] # ships no types

    try:
        value: bytes = reduce(_merge, map(Value.FromString, chunks)).SerializeToString()
    except (DecodeError, ValueError, RecursionError) as error:
        raise RecordUnreadable(f"Spanner's answer has chunks that are not a value ({error})") from error
    return value


def _merge(left: Any, right: Any) -> Any:
    kind = left.WhichOneof("kind")
    if kind not in _JOINED or right.WhichOneof("kind") != kind:
        raise ValueError(f"{kind} and {right.WhichOneof('kind')} are not parts of one value")
    if kind == "string_value":
        left.string_value += right.string_value
        return left
    values, rest = left.list_value.values, list(right.list_value.values)
    if values and rest:
        kind = values[-1].WhichOneof("kind")
        # Items of two kinds are two items: a list may be divided between a text and a NULL.
        if kind in _JOINED and rest[0].WhichOneof("kind") == kind:
            _merge(values[-1], rest.pop(0))
    values.extend(rest)
    return left


def _fields(metadata: bytes) -> Any:
    from google.cloud.spanner_v1.types import ResultSetMetadata

    return ResultSetMetadata.deserialize(metadata).row_type.fields
