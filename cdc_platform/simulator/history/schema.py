"""Tables at a time of the history, and the changes of their schema."""

import threading
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.simulator.history.schema_changes import all_changes, parse_watched
from cdc_platform.simulator.wire.simulator_settings import (
    DEFAULT_PLACEMENT,
    Dialect,
    SchemaChange,
    SchemaChangeKind,
    SimulatorSettings,
)
from cdc_platform.simulator.wire.values import PROTO_NAMES, UNKNOWN, in_dialect

ACCOUNTS: Final = "accounts"
TRANSFERS: Final = "transfers"
ALL_TYPES: Final = "all_types"
DOCUMENTS: Final = "documents"

_ACCOUNT_COLUMNS: Final = {
    "account_id": "INT64",
    "owner": "STRING",
    "balance": "INT64",
    "opened_on": "DATE",
    "labels": "ARRAY<STRING>",
}
_TRANSFER_COLUMNS: Final = {
    "transfer_id": "STRING",
    "from_account": "INT64",
    "to_account": "INT64",
    "amount": "INT64",
    "fee": "NUMERIC",
    "booked_at": "TIMESTAMP",
    "note": "STRING",
}
_ADDED_TABLE: Final = {"id": "STRING", "text": "STRING", "number": "INT64"}
_REQUIRED: Final = frozenset({"owner", "balance", "from_account", "to_account", "amount"})
_SCALARS: Final = (
    *("BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP"),
    *("JSON", "UUID", "INTERVAL", UNKNOWN),
)


# Compared by identity: they are keys of caches that are used for every record.
@dataclass(frozen=True, eq=False)
class SimColumn:
    """A column; `slot` is the place of its values in a row, which no later column of the same name shares."""

    name: str
    type: ColumnType
    slot: int
    is_primary_key: bool
    is_required: bool = False


@dataclass(frozen=True, eq=False)
class SimTable:
    """A table; `number` identifies it in the history, and `slots` is the number of slots of its rows so far.

    `listed` are the columns that the change stream names, None if it watches the whole table.
    """

    number: int
    name: str
    columns: tuple[SimColumn, ...]
    slots: int
    is_watched: bool = True
    listed: frozenset[str] | None = None

    @cached_property
    def key_columns(self) -> tuple[SimColumn, ...]:
        """The columns of the primary key, in order."""
        return tuple(column for column in self.columns if column.is_primary_key)

    @cached_property
    def value_columns(self) -> tuple[SimColumn, ...]:
        """The columns outside the primary key."""
        return tuple(column for column in self.columns if not column.is_primary_key)

    @cached_property
    def value_slots(self) -> tuple[int, ...]:
        """The slots of the columns outside the primary key."""
        return tuple(column.slot for column in self.value_columns)

    @cached_property
    def watched_slots(self) -> tuple[int, ...]:
        """The slots of the columns outside the primary key that the change stream watches."""
        names = self.listed
        return tuple(column.slot for column in self.value_columns if names is None or column.name in names)

    def column(self, name: str) -> SimColumn | None:
        """Return a column, or None."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True)
class Schema:
    """All tables from a time on, and the change stream's coverage of them.

    `watches_all` means that it watches every table, including later ones. `placements` are those with a read
    function, including the default one; none if one function reads everything.
    """

    from_micros: int
    version: int
    tables: Mapping[str, SimTable]
    capture: ValueCaptureType
    watches_all: bool = True
    placements: tuple[str, ...] = ()

    @cached_property
    def by_number(self) -> Mapping[int, SimTable]:
        """The tables by their number."""
        return {table.number: table for table in self.tables.values()}


class Schemas:
    """The schema at every time: a pure function of the settings and the origin."""

    def __init__(self, settings: SimulatorSettings, origin_micros: int) -> None:
        self._settings, self._origin_micros = settings, origin_micros
        self._lock = threading.Lock()
        self._schemas = [_first_schema(settings)]
        first = {
            table.name: [column.name for column in table.value_columns]
            for table in self._schemas[0].tables.values()
        }
        self._upcoming = all_changes(settings, TRANSFERS, "note", first)
        self._next = next(self._upcoming, None)
        self._starts = [self._schemas[0].from_micros]

    def at(self, micros: int) -> Schema:
        """Return the schema at a time."""
        with self._lock:
            while self._next is not None and self._micros(self._next) <= micros:
                self._schemas.append(self._apply(self._schemas[-1], self._next))
                self._starts.append(self._schemas[-1].from_micros)
                self._next = next(self._upcoming, None)
            return self._schemas[bisect_right(self._starts, micros) - 1]

    def _micros(self, change: SchemaChange) -> int:
        return self._origin_micros + int(change.at_s * 1_000_000)

    def _apply(self, before: Schema, change: SchemaChange) -> Schema:
        after = replace(before, from_micros=self._micros(change), version=before.version + 1)
        if change.kind is SchemaChangeKind.SET_CAPTURE:
            return replace(after, capture=ValueCaptureType(change.value))
        if change.kind is SchemaChangeKind.SET_WATCHED:
            return _watching(after, change.value)
        if change.kind is SchemaChangeKind.ADD_PLACEMENT:
            return replace(after, placements=(*before.placements, change.value))
        if change.kind is SchemaChangeKind.ADD_TABLE:
            number = max(before.by_number) + 1
            table = _table(number, change.table, _ADDED_TABLE, 1, self._settings)
            table = replace(table, is_watched=before.watches_all)
            return replace(after, tables={**before.tables, table.name: table})
        table = before.tables[change.table]
        new_table = replace(table, columns=_changed_columns(table, change, self._settings))
        is_addition = change.kind is SchemaChangeKind.ADD_COLUMN
        new_table = replace(new_table, slots=table.slots + is_addition)
        return replace(after, tables={**before.tables, table.name: new_table})


def _changed_columns(
    table: SimTable, change: SchemaChange, settings: SimulatorSettings
) -> tuple[SimColumn, ...]:
    changed_column = table.column(change.column)
    if change.kind is SchemaChangeKind.ADD_COLUMN:
        of_type = in_dialect(ColumnType.from_spanner_type(change.value), settings.dialect)
        return (*table.columns, SimColumn(change.column, of_type, table.slots, is_primary_key=False))
    if changed_column is None:
        raise SettingError("schema_changes", f"names a column that `{table.name}` lacks: {change.column}")
    if change.kind is SchemaChangeKind.DROP_COLUMN:
        if changed_column.name in (table.listed or ()):
            problem = f"drops a column that the change stream names: {table.name}.{changed_column.name}"
            raise SettingError("schema_changes", problem)
        return tuple(column for column in table.columns if column is not changed_column)
    new_column = replace(changed_column, type=ColumnType.from_spanner_type(change.value))
    return tuple(new_column if column is changed_column else column for column in table.columns)


def _watching(schema: Schema, clause: str) -> Schema:
    """Return the schema with a change stream that watches the tables after `FOR`."""
    clause_columns = parse_watched(clause)
    if clause_columns is None:
        tables = {name: replace(table, is_watched=True, listed=None) for name, table in schema.tables.items()}
        return replace(schema, tables=tables, watches_all=True)
    for name, columns in clause_columns.items():
        _check_watched(schema.tables.get(name), name, columns or frozenset())
    tables = {
        name: replace(table, is_watched=name in clause_columns, listed=clause_columns.get(name))
        for name, table in schema.tables.items()
    }
    return replace(schema, tables=tables, watches_all=False)


def _check_watched(table: SimTable | None, name: str, columns: frozenset[str]) -> None:
    if table is None:
        raise SettingError("schema_changes", f"has a change stream for a table that does not exist: {name}")
    unfit = columns - {column.name for column in table.value_columns}
    if unfit:
        problem = f"has a change stream for a name that is not a column outside the key: {name}.{min(unfit)}"
        raise SettingError("schema_changes", problem)


def bank_tables(bank: int) -> tuple[str, str]:
    """Return the names of a bank's accounts and transfers."""
    suffix = "" if bank == 0 else f"_{bank + 1}"
    return f"{ACCOUNTS}{suffix}", f"{TRANSFERS}{suffix}"


def _first_schema(settings: SimulatorSettings) -> Schema:
    layouts: list[tuple[str, Mapping[str, str], int]] = []
    for bank in range(settings.banks):
        accounts, transfers = bank_tables(bank)
        layouts += [(accounts, _ACCOUNT_COLUMNS, 1), (transfers, _TRANSFER_COLUMNS, 1)]
    if settings.all_types:
        layouts.append((ALL_TYPES, _typed_columns(settings.dialect), 2))
    if settings.document_bytes:
        layouts.append((DOCUMENTS, {"document_id": "INT64", "body": "STRING"}, 1))
    tables = [_table(number, *layout, settings) for number, layout in enumerate(layouts)]
    placements = (DEFAULT_PLACEMENT, *settings.placements) if settings.placements else ()
    tables_by_name = {table.name: table for table in tables}
    return Schema(0, 0, tables_by_name, settings.value_capture_type, placements=placements)


def _typed_columns(dialect: Dialect) -> dict[str, str]:
    """Return a column of every type of the dialect, and an array of it."""
    codes = (*_SCALARS, *(PROTO_NAMES if dialect is Dialect.GOOGLESQL else ()))
    scalars = {f"c_{code.lower()}": code for code in codes}
    arrays = {f"a_{code.lower()}": f"ARRAY<{code}>" for code in codes}
    return {"id": "INT64", "part": "STRING", **scalars, **arrays}


def _table(
    number: int, name: str, columns: Mapping[str, str], keys: int, settings: SimulatorSettings
) -> SimTable:
    sim_columns = tuple(
        SimColumn(
            column,
            in_dialect(ColumnType.from_spanner_type(of_type), settings.dialect),
            slot,
            is_primary_key=slot < keys,
            is_required=slot < keys or column in _REQUIRED,
        )
        for slot, (column, of_type) in enumerate(columns.items())
    )
    return SimTable(number, name, sim_columns, len(sim_columns))
