"""Rows of a streaming query, put together from the messages that carry them."""

from collections.abc import Iterable, Iterator
from typing import Any

from cdc_platform.errors import RecordUnreadable


class RowAssembler:
    """Turns partial result sets into rows of protobuf values; a value may go on in the next message.

    ``field_names`` and ``column_count`` are known after the first message.
    """

    def __init__(self) -> None:
        self.fields: Any = None
        self._row: list[Any] = []
        self._pending: Any = None

    @property
    def column_count(self) -> int:
        """Number of values in a row; 0 before the first message."""
        return 0 if self.fields is None else len(self.fields)

    def rows(self, messages: Iterable[Any]) -> Iterator[list[Any]]:
        """Yield each row as soon as its last value is there; the values are not decoded.

        Raises:
            RecordUnreadable: The stream ended inside a row.
        """
        for message in messages:
            if self.fields is None and message.metadata.row_type.fields:
                self.fields = message.metadata.row_type.fields
            yield from self._add(message)
        if self._row or self._pending is not None:
            raise RecordUnreadable("Spanner's answer ended in the middle of a row; read the slice again")

    def _add(self, message: Any) -> Iterator[list[Any]]:
        values = list(message.values)
        if self._pending is not None and values:
            values[0] = merge_chunks(self._pending, values[0])
            self._pending = None
        if message.chunked_value and values:
            self._pending = values.pop()
        count = self.column_count
        for value in values:
            self._row.append(value)
            if len(self._row) == count:
                yield self._row
                self._row = []


def merge_chunks(left: Any, right: Any) -> Any:
    """Return the value that two chunks make: texts are joined, lists too, and so are the items that meet."""
    from google.protobuf.struct_pb2 import Value

    if left.HasField("string_value"):
        return Value(string_value=left.string_value + right.string_value)
    merged = Value()
    merged.CopyFrom(left)
    items = merged.list_value.values
    rest = list(right.list_value.values)
    if len(items) and rest and (items[-1].HasField("string_value") or items[-1].HasField("list_value")):
        items[-1].CopyFrom(merge_chunks(items[-1], rest.pop(0)))
    items.extend(rest)
    return merged
