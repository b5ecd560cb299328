"""Rows with the same columns, accessed by column."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from cdc_platform.model.base.names import unfit_columns_reason
from cdc_platform.model.schema.table_schema import MAX_INT64, MAX_PLAIN_INTEGER


class WideInteger(int):
    """Marker for 64-bit integers that readers of JSON could round."""


class HugeInteger(int):
    """Marker for integers of more than 64 bits."""


class RowBatch:
    """Rows of one schema with the same columns in the same order.

    Args:
        schema: other facts that the rows share.
        names: their columns.
    """

    def __init__(self, schema: tuple[str, str], names: tuple[str, ...]) -> None:
        self.schema, self.names = schema, names
        self.name_reason = unfit_columns_reason(names)
        """Reason why no table can have these columns; a name that is too long affects only its own row."""
        self.rows: list[dict[str, Any]] = []

    @cached_property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The values of each column; read before a row is changed."""
        return dict(zip(self.names, zip(*map(dict.values, self.rows), strict=True), strict=True))

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
