"""Values that the source did not send, found where they were last seen: in the batch or in the tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from cdc_platform.model.stream.records import ModType

RowId = tuple[str, str]
"""Table, and key as the one JSON text that equal keys share."""
Values = Mapping[str, Any]
StoredRows = Mapping[RowId, Values | None]
"""Rows before the batch: values by column. A column that is missing is itself unresolved; None is no row."""


class Origin(StrEnum):
    """Place where a value that was not sent was found."""

    BATCH = "batch"
    """In an earlier change of the batch, of the same key."""
    OLD_KEY = "old_key"
    """Under the key that the row had before."""
    STORED = "stored"
    """In the table, under the row's own key."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change, of those that a batch has in the order of the source.

    ``new_values`` has no value for the unavailable columns. Where the change is no whole row, columns that
    it does not name keep their values. ``may_move`` says of a DELETE that it may be the first half of a
    change of the key.
    """

    table: str
    key: str
    mod_type: ModType
    new_values: Values | None = None
    unavailable: tuple[str, ...] = ()
    previous_key: str | None = None
    is_whole_row: bool = True
    may_move: bool = False

    @property
    def row_id(self) -> RowId:
        """The row after the change."""
        return self.table, self.key

    @property
    def previous_id(self) -> RowId | None:
        """The row before a change of its key."""
        return None if self.previous_key is None else (self.table, self.previous_key)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Columns of a change whose values nobody knows; ``index`` is the change's place in the batch."""

    index: int
    table: str
    key: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resolution:
    """A batch with its values filled in.

    Args:
        changes: all changes, in their order; what stays unresolved of one is left in its `unavailable`.
        unresolved: what nobody knows.
        origins: how many values were found where.
        departed: rows with their last values whose keys were given up and not taken yet: the first half of a
            key change may end one batch, and the second half begin the next, which has to be given them.
    """

    changes: tuple[RowChange, ...]
    unresolved: tuple[Unresolved, ...]
    origins: Mapping[Origin, int]
    departed: Mapping[RowId, Values]


@dataclass(slots=True)
class _Row:
    """A row: values from the batch, and the stored row for all others."""

    batch_values: dict[str, Any]
    stored: Values


_NOTHING: Final[Values] = {}
_MISSING: Final = object()


def resolve(
    changes: Sequence[RowChange],
    stored: StoredRows,
    departed: Mapping[RowId, Values] = MappingProxyType({}),
) -> Resolution:
    """Return the changes with the values that the source did not send.

    A value is looked for column by column, in what came before in the batch, under the key that the row had
    then, and else in the stored row. A row deleted or truncated away leaves nothing to a row that gets its
    key later: only the row whose key has changed takes its values along.

    Args:
        changes: of one batch, in the order of the source, without duplicates.
        stored: rows before the batch, at least those of `needed_rows`.
        departed: of the resolution of the batch before.
    """
    tracker = RowTracker(stored, departed)
    resolved = tuple(map(tracker.take, changes))
    unresolved = (
        Unresolved(index, change.table, change.key, change.unavailable)
        for index, change in enumerate(resolved)
        if change.unavailable
    )
    return Resolution(resolved, tuple(unresolved), tracker.origins, tracker.departed)


def needed_rows(changes: Iterable[RowChange]) -> frozenset[RowId]:
    """Return the rows that must be looked up: those in which a value may be found, at most one a change."""
    return frozenset(_needed(changes))


def _needed(changes: Iterable[RowChange]) -> Iterator[RowId]:
    whole: set[RowId] = set()
    for change in changes:
        origin = change.previous_id or change.row_id
        if (change.unavailable or change.may_move) and origin not in whole:
            yield origin
        if change.mod_type in (ModType.INSERT, ModType.SNAPSHOT) and not change.unavailable:
            whole.add(change.row_id)


class RowTracker:
    """Follows the rows of a batch, change by change; see `resolve`.

    Attributes:
        origins: how many values were found where, so far.
    """

    def __init__(self, stored: StoredRows, departed: Mapping[RowId, Values] = MappingProxyType({})) -> None:
        """Begin before the first change; stored rows are looked at when a change asks for them."""
        self.origins = dict.fromkeys(Origin, 0)
        self._stored = stored
        self._rows: dict[RowId, _Row | None] = {}
        self._departed: dict[RowId, _Row] = {row_id: _Row({}, values) for row_id, values in departed.items()}
        self._gone = set(departed)
        self._truncated: set[str] = set()

    @property
    def departed(self) -> Mapping[RowId, Values]:
        """Rows whose keys were given up and not taken yet, with their last values."""
        return {row_id: _values_of(self._departed[row_id]) for row_id in self._gone}

    def take(self, change: RowChange) -> RowChange:
        """Return the next change of the batch, with the values that the source did not send."""
        if change.mod_type is ModType.TRUNCATE:
            self._truncate(change.table)
            return change
        if change.mod_type is ModType.DELETE:
            self._delete(change)
            return change
        return self._write(change)

    def _truncate(self, table: str) -> None:
        self._truncated.add(table)
        for rows in (self._rows, self._departed):
            for row_id in [row_id for row_id in rows if row_id[0] == table]:
                del rows[row_id]
        self._gone = {row_id for row_id in self._gone if row_id[0] != table}

    def _delete(self, change: RowChange) -> None:
        row = self._row(change.row_id)
        self._rows[change.row_id] = None
        self._departed[change.row_id] = row or _Row({}, _NOTHING)
        if change.may_move:
            self._gone.add(change.row_id)

    def _write(self, change: RowChange) -> RowChange:
        base = self._base(change)
        values, missing = dict(change.new_values or {}), []
        for column in change.unavailable:
            value = _lookup(base, column)
            if value is _MISSING:
                missing.append(column)
            else:
                values[column] = value
                self.origins[self._origin(change, base, column)] += 1
        stored = _NOTHING if change.is_whole_row or base is None else base.stored
        earlier = {} if change.is_whole_row or base is None else base.batch_values
        self._rows[change.row_id] = _Row({**earlier, **values}, stored)
        if change.new_values is not None and not change.unavailable:
            return change
        return replace(change, new_values=values, unavailable=tuple(missing))

    def _base(self, change: RowChange) -> _Row | None:
        """Return the row as it was before the change, under the key that it had then."""
        if change.previous_id is None:
            return None if change.mod_type is ModType.INSERT else self._row(change.row_id)
        departed = self._departed.pop(change.previous_id, None)
        if departed is not None:
            self._gone.discard(change.previous_id)
            return departed
        row = self._row(change.previous_id)
        self._rows[change.previous_id] = None
        return row

    def _row(self, row_id: RowId) -> _Row | None:
        if row_id in self._rows:
            return self._rows[row_id]
        if row_id[0] in self._truncated:
            return None
        stored = self._stored.get(row_id)
        return None if stored is None else _Row({}, stored)

    def _origin(self, change: RowChange, base: _Row | None, column: str) -> Origin:
        if change.previous_id is not None:
            return Origin.OLD_KEY
        return Origin.BATCH if base is not None and column in base.batch_values else Origin.STORED


def _lookup(row: _Row | None, column: str) -> Any:
    if row is None:
        return _MISSING
    return row.batch_values[column] if column in row.batch_values else row.stored.get(column, _MISSING)


def _values_of(row: _Row) -> Values:
    return {**row.stored, **row.batch_values}
