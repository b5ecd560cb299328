"""Values that the source did not send, taken from where they were last seen: the batch or the tables."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_platform.model.stream.records import ModType

RowId = tuple[str, str]
"""Table, and key as a JSON text that is the same for equal keys."""
Values = Mapping[str, Any]
StoredRows = Mapping[RowId, Values | None]
"""Rows before the batch: values by column. A missing column is itself unresolved; None means no row."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of a batch, in the order of the source.

    ``new_values`` lacks the unavailable columns. If the change is not a whole row, columns that it omits
    keep their values.
    """

    table: str
    key: str
    mod_type: ModType
    new_values: Values | None = None
    unavailable: tuple[str, ...] = ()
    previous_key: str | None = None
    is_whole_row: bool = True

    @property
    def row_id(self) -> RowId:
        """The row after the change."""
        return self.table, self.key

    @property
    def previous_id(self) -> RowId | None:
        """The row before a change of its key."""
        return None if self.previous_key is None else (self.table, self.previous_key)


@dataclass(slots=True)
class _Row:
    """A row: values from the batch, and the stored row for all other values."""

    batch_values: dict[str, Any]
    stored_values: Values


_NOTHING: Final[Values] = {}
_MISSING: Final = object()


class RowTracker:
    """Follows rows, change by change, and finds the values that the source did not send.

    It looks up each column in the earlier changes, under the row's key at that time, and otherwise in the
    stored row. A deleted or truncated row leaves no values to a later row with its key: only a row whose
    key changes keeps its values.
    """

    def __init__(self, stored_rows: StoredRows) -> None:
        """Begin before the first change.

        Args:
            stored_rows: rows before that change; read when a change needs them.
        """
        self._stored_rows = stored_rows
        self._rows: dict[RowId, _Row | None] = {}
        self._departed: dict[RowId, _Row] = {}
        self._truncated: set[str] = set()

    def take(self, change: RowChange) -> RowChange:
        """Return the next change with the values that the source did not send; `unavailable` has the rest."""
        if change.mod_type is ModType.TRUNCATE:
            self._truncate(change.table)
            return change
        if change.mod_type is ModType.DELETE:
            self._departed[change.row_id] = self._row(change.row_id) or _Row({}, _NOTHING)
            self._rows[change.row_id] = None
            return change
        return self._write(change)

    def _truncate(self, table: str) -> None:
        self._truncated.add(table)
        for rows in (self._rows, self._departed):
            for row_id in [row_id for row_id in rows if row_id[0] == table]:
                del rows[row_id]

    def _write(self, change: RowChange) -> RowChange:
        base = self._base(change)
        values, gaps = dict(change.new_values or {}), []
        for column in change.unavailable:
            value = _lookup(base, column)
            if value is _MISSING:
                gaps.append(column)
            else:
                values[column] = value
        stored_values = _NOTHING if change.is_whole_row or base is None else base.stored_values
        earlier = {} if change.is_whole_row or base is None else base.batch_values
        self._rows[change.row_id] = _Row({**earlier, **values}, stored_values)
        if change.new_values is not None and not change.unavailable:
            return change
        return replace(change, new_values=values, unavailable=tuple(gaps))

    def _base(self, change: RowChange) -> _Row | None:
        """Return the row before the change, under its key at that time."""
        if change.previous_id is None:
            # A row that left the key earlier already has its new key, or will never get one.
            self._departed.pop(change.row_id, None)
            return None if change.mod_type is ModType.INSERT else self._row(change.row_id)
        departed_row = self._departed.pop(change.previous_id, None)
        if departed_row is not None:
            return departed_row
        row = self._row(change.previous_id)
        self._rows[change.previous_id] = None
        return row

    def _row(self, row_id: RowId) -> _Row | None:
        if row_id in self._rows:
            return self._rows[row_id]
        if row_id[0] in self._truncated:
            return None
        stored_values = self._stored_rows.get(row_id)
        return None if stored_values is None else _Row({}, stored_values)


def _lookup(row: _Row | None, column: str) -> Any:
    if row is None:
        return _MISSING
    return row.batch_values[column] if column in row.batch_values else row.stored_values.get(column, _MISSING)


Link = tuple[RowId, RowId]
"""Ids of a row after and before a change of its key."""


def key_chains_of(row_ids: Collection[RowId], links: Iterable[Link]) -> Mapping[RowId, str]:
    """Return rows and all rows that key changes connect to them in either direction, with their key chains.

    A key chain is named by one of its keys.
    """
    neighbours: dict[RowId, list[RowId]] = {}
    for row, other in links:
        neighbours.setdefault(row, []).append(other)
        neighbours.setdefault(other, []).append(row)
    chains: dict[RowId, str] = {}
    for first in sorted(row_ids):
        open_ids = [first]
        while open_ids:
            row_id = open_ids.pop()
            if row_id not in chains:
                chains[row_id] = first[1]
                open_ids.extend(neighbours.get(row_id, ()))
    return chains
