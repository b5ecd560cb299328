"""Ranges of a table's primary key, as conditions of Spanner's SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.base.names import quote_spanner
from cdc_platform.model.schema.table_schema import Column
from cdc_platform.sources.spanner.client.query import Parameter

TEXT_TYPES: Final = frozenset({"INT64", "STRING", "BYTES", "DATE", "TIMESTAMP", "NUMERIC", "UUID"})
"""Types whose values are texts on the wire, so that values can be bound exactly as they were read."""

Bound = Sequence[str | None]
"""Values of the first key columns, as texts on the wire."""


@dataclass(frozen=True)
class OrderedKeyColumn:
    """A column of the primary key; NULL sorts first, or last in descending order."""

    column: Column
    is_descending: bool = False

    @property
    def sql(self) -> str:
        """The quoted name."""
        return quote_spanner(self.column.name)

    @property
    def order_sql(self) -> str:
        """The column with its direction, as in ORDER BY."""
        return f"{self.sql} DESC" if self.is_descending else self.sql


@dataclass(frozen=True)
class KeyRange:
    """Rows whose first key columns are in `(after_exclusive, until_inclusive]`; None means no bound."""

    after_exclusive: Bound | None = None
    until_inclusive: Bound | None = None

    def condition(self, columns: Sequence[OrderedKeyColumn]) -> str:
        """Return the condition for WHERE; empty for all rows."""
        parts: list[str] = []
        if self.after_exclusive is not None:
            parts.append(_after(columns, self.after_exclusive, "a", 0))
        if self.until_inclusive is not None:
            parts.append(f"NOT ({_after(columns, self.until_inclusive, 'u', 0)})")
        return " AND ".join(f"({part})" for part in [*self._seek(columns), *parts])

    def parameters(self, columns: Sequence[OrderedKeyColumn]) -> Mapping[str, Parameter]:
        """Return the parameters of the condition."""
        return {
            f"{name}{place}": Parameter(key.column.type.code, text)
            for name, bound in (("a", self.after_exclusive), ("u", self.until_inclusive))
            for place, (key, text) in enumerate(zip(columns, bound or (), strict=False))
            if text is not None
        }

    def _seek(self, columns: Sequence[OrderedKeyColumn]) -> list[str]:
        """Return a plain range of the first column, which Spanner can seek before the exact condition."""
        key = columns[0]
        after = "@a0" if self.after_exclusive and self.after_exclusive[0] is not None else None
        until = "@u0" if self.until_inclusive and self.until_inclusive[0] is not None else None
        low, high = (until, after) if key.is_descending else (after, until)
        parts = [f"{key.sql} >= {low}"] if low else []
        if high:
            # NULL sorts at the low end, which a lower bound excludes.
            parts.append(f"{key.sql} <= {high}" + ("" if low else f" OR {key.sql} IS NULL"))
        return parts


def splittable(columns: Sequence[OrderedKeyColumn]) -> tuple[OrderedKeyColumn, ...]:
    """Return the leading key columns whose values can be bound exactly as they were read."""
    leading: list[OrderedKeyColumn] = []
    for key in columns:
        if key.column.type.code not in TEXT_TYPES:
            break
        leading.append(key)
    return tuple(leading)


def _after(columns: Sequence[OrderedKeyColumn], bound: Bound, name: str, place: int) -> str:
    """Return the condition that a row follows a bound in the order of the key; it is never NULL."""
    key, text = columns[place], bound[place]
    strictly = _strictly_after(key, text, f"@{name}{place}")
    if place + 1 == len(bound):
        return strictly
    equal = f"{key.sql} IS NULL" if text is None else f"COALESCE({key.sql} = @{name}{place}, FALSE)"
    return f"{strictly} OR ({equal} AND ({_after(columns, bound, name, place + 1)}))"


def _strictly_after(key: OrderedKeyColumn, text: str | None, parameter: str) -> str:
    if text is None:
        return "FALSE" if key.is_descending else f"{key.sql} IS NOT NULL"
    if key.is_descending:
        return f"COALESCE({key.sql} < {parameter}, TRUE)"
    return f"COALESCE({key.sql} > {parameter}, FALSE)"
