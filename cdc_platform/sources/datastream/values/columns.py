"""Rows of one schema, accessed by column."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from cdc_platform.model.schema.table_schema import MAX_INT64, MAX_PLAIN_INTEGER


class WideInteger(int):
    """Marker for 64-bit integers that readers of JSON could round."""


class HugeInteger(int):
    """Marker for integers of more than 64 bits."""


class RowBatch:
    """Rows of one schema.

    Args:
        schema: other facts that the rows share.
        rows: the rows.
        shapes: the columns of each row, each list of columns once.
    """

    def __init__(
        self, schema: tuple[str, str], rows: list[dict[str, Any]], shapes: list[tuple[str, ...]]
    ) -> None:
        self.schema, self.rows, self.shapes = schema, rows, shapes

    @classmethod
    def of(cls, schema: tuple[str, str], rows: list[dict[str, Any]]) -> "RowBatch":
        """Return a batch of rows whose columns are not known yet."""
        return cls(schema, rows, list(dict.fromkeys(map(tuple, rows))))

    @property
    def names(self) -> Collection[str]:
        """The columns of any row, in the order in which they came up."""
        return dict.fromkeys(chain.from_iterable(self.shapes))

    @cached_property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The values of each column, null in rows that lack it; read before a row is changed."""
        if len(self.shapes) == 1:
            return dict(zip(self.shapes[0], zip(*map(dict.values, self.rows), strict=True), strict=True))
        return {name: [row.get(name) for row in self.rows] for name in self.names}

    @cached_property
    def types(self) -> Mapping[str, frozenset[type]]:
        """The types of each column's values; those of integers include their size."""
        return {name: types_of(values) for name, values in self.columns.items()}


def types_of(values: Sequence[Any]) -> frozenset[type]:
    """Return the types of values; large integers have their own types."""
    types = set(map(type, values))
    if int in types:
        integers = values if len(types) == 1 else [value for value in values if type(value) is int]
        types |= _sizes(min(integers), max(integers))
    return frozenset(types)


def _sizes(lowest: int, highest: int) -> set[type]:
    if lowest >= -MAX_PLAIN_INTEGER and highest <= MAX_PLAIN_INTEGER:
        return set()
    return {WideInteger} if lowest >= -MAX_INT64 - 1 and highest <= MAX_INT64 else {WideInteger, HugeInteger}
