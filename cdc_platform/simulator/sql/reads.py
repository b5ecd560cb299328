"""Plain reads of tables, or of parts of them, at one time."""

import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.schema import SimColumn, SimTable
from cdc_platform.simulator.history.transactions import Key
from cdc_platform.simulator.history.transactions import Row as TableRow
from cdc_platform.simulator.sql.information import type_of
from cdc_platform.simulator.sql.read_only import answer, read_only
from cdc_platform.simulator.sql.translation import to_sqlite
from cdc_platform.simulator.wire.chunks import Cursor, Row
from cdc_platform.simulator.wire.problems import Refusal, syntax_error
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform.simulator.wire.values import as_json, value_writer

TableContent: TypeAlias = tuple[SimTable, Sequence[SimColumn], Iterable[TableRow]]
"""A table, the required columns, and its rows in the order of the key."""


class RowDatabase:
    """Tables in memory, under their own names; safe to use from several threads."""

    def __init__(self, tables: Iterable[TableContent]) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        for table, columns, rows in tables:
            names = ", ".join(f'"{column.name}"' for column in columns)
            marks = ", ".join("?" * len(columns))
            self._connection.execute(f'CREATE TABLE "{table.name}" ({names})')
            cells = ([_stored_value(row, column) for column in columns] for row in rows)
            self._connection.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', cells)
        read_only(self._connection)

    def __del__(self) -> None:
        self._connection.close()

    def run(
        self, sql: str, parameters: Mapping[str, Any], dialect: Dialect
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the columns' names and the rows of a query.

        Raises:
            Refusal: SQLite rejects it, or it does more than read, or too much.
        """
        try:
            query = to_sqlite(sql, parameters, dialect)
            with self._lock:
                return answer(self._connection, query)
        except sqlite3.Error as error:
            raise syntax_error(dialect, str(error)) from error


def _stored_value(row: TableRow, column: SimColumn) -> Any:
    cell = row[column.slot] if column.slot < len(row) else None
    if cell is None or isinstance(cell, int | float | bytes):
        return cell
    value = as_json(column.type, cell)
    return str(value) if isinstance(value, list) else value


Columns: TypeAlias = list[tuple[str, ColumnType]]

_ROWS_PER_BATCH: Final = 1000
_KEPT_VERSIONS: Final = 6
_SELECT: Final = re.compile(
    # White space is matched possessively: otherwise a query of spaces takes quadratic time.
    r"""\s*+SELECT\s++(?P<columns>\S++(?:\s++(?!FROM\s)\S++)*+)\s++FROM\s++(?P<table>[`"\w.]++)(?:\s++(?:AS\s++)?(?!WHERE|ORDER|LIMIT)(?P<alias>\w+))?"""
    r"""(?P<rest>(?:\s++(?:WHERE|ORDER|LIMIT)\b.*)?)\s*+(?:;\s*+)?""",
    re.IGNORECASE | re.DOTALL,
)
_ORDER: Final = re.compile(r"\s*ORDER\s+BY\s+(?P<columns>[^()\s][^()]*)", re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r"""\s*(?:\w+\.)?([`"]?)(?P<name>[^\W\d]\w*)\1\s*(?:ASC\s*)?""", re.IGNORECASE)


@dataclass(frozen=True)
class Snapshot:
    """The rows of a table at one time, in the order of the primary key."""

    table: SimTable
    rows: Mapping[Key, TableRow]

    @cached_property
    def keys(self) -> list[Key]:
        """The keys in order."""
        return sorted(self.rows)

    @cached_property
    def keys_in_sqlite(self) -> RowDatabase:
        """The keys as a SQLite table; `rowid` is their place in order, from 1."""
        return RowDatabase([(self.table, self.table.key_columns, self.keys)])

    def in_order(self) -> Iterator[TableRow]:
        """Yield the rows in the order of their keys."""
        return (self.rows[key] for key in self.keys)


@dataclass(frozen=True)
class Result:
    """The columns of an answer, and a function that yields its rows after a number of them."""

    columns: Columns
    rows: Callable[[int], Iterator[list[Row]]]


class TableReads:
    """Answers reads of the simulated database's tables."""

    def __init__(self, history: History) -> None:
        self._history, self._dialect = history, history.settings.dialect
        self._lock = threading.Lock()
        self._versions: OrderedDict[tuple[int, int], Snapshot] = OrderedDict()

    def version(self, name: str, micros: int) -> Snapshot:
        """Return a table at one time.

        Raises:
            Refusal: it did not exist.
        """
        schema = self._history.schemas.at(micros)
        table_name = name.replace("`", "").replace('"', "").removeprefix("public.")
        table = next((table for table in schema.tables.values() if _equal(table.name, table_name)), None)
        if table is None:
            if self._dialect is Dialect.GOOGLESQL:
                raise Refusal("INVALID_ARGUMENT", f"Table not found: {table_name}")
            raise Refusal("NOT_FOUND", f'relation "{table_name}" does not exist')
        with self._lock:
            version = self._versions.get((table.number, micros))
            if version is None:
                version = Snapshot(table, self._history.rows_at(table.number, micros))
                self._versions[table.number, micros] = version
                if len(self._versions) > _KEPT_VERSIONS:
                    self._versions.popitem(last=False)
            return version

    def answer(self, sql: str, parameters: Mapping[str, Any], micros: int) -> Result:
        """Return the answer to a query of tables.

        Raises:
            Refusal: it cannot be answered.
        """
        select = _SELECT.fullmatch(sql)
        if select is None:
            return self._compute(sql, parameters, micros)
        names = split_names(select["columns"])
        if names is None:
            return self._compute(sql, parameters, micros)
        version = self.version(select["table"], micros)
        columns = self.columns(version.table, names)
        keys = self._keys(version, select["alias"] or version.table.name, select["rest"], parameters)
        return self.result(version, columns, keys)

    def columns(self, table: SimTable, names: Sequence[str]) -> list[SimColumn]:
        """Return the columns with some names; `*` stands for all."""
        if list(names) == ["*"]:
            return list(table.columns)
        sim_columns = []
        for name in names:
            column = next((column for column in table.columns if _equal(column.name, name)), None)
            if column is None:
                is_googlesql = self._dialect is Dialect.GOOGLESQL
                text = (
                    f"Unrecognized name: {name}"
                    if is_googlesql
                    else f'[ERROR] column "{name}" does not exist'
                )
                raise Refusal("INVALID_ARGUMENT", text)
            sim_columns.append(column)
        return sim_columns

    def result(self, version: Snapshot, columns: Sequence[SimColumn], keys: Sequence[Key]) -> Result:
        """Return the rows of keys with some of their columns."""
        writers = [(column.slot, value_writer(column.type)) for column in columns]

        def rows(skip: int) -> Iterator[list[Row]]:
            for begin in range(skip, len(keys), _ROWS_PER_BATCH):
                batch = keys[begin : begin + _ROWS_PER_BATCH]
                yield [
                    Row(
                        tuple([write(row[slot] if slot < len(row) else None) for slot, write in writers]),
                        Cursor(0, number),
                    )
                    for number, row in enumerate((version.rows[key] for key in batch), start=begin + 1)
                ]

        return Result([(column.name, column.type) for column in columns], rows)

    def _keys(self, version: Snapshot, alias: str, rest: str, parameters: Mapping[str, Any]) -> Sequence[Key]:
        """Return the keys of the rows that match conditions, in the requested order."""
        order = _ORDER.fullmatch(rest)
        order_names = split_names(order["columns"]) if order else None
        key_names = [column.name for column in version.table.key_columns]
        if not rest.strip() or (order_names is not None and order_names == key_names[: len(order_names)]):
            return version.keys
        table = version.table
        values = [
            name
            for name in re.findall(r"\w+", rest)
            if (key_column := table.column(name)) and not key_column.is_primary_key
        ]
        database = (
            RowDatabase([(table, table.columns, version.in_order())]) if values else version.keys_in_sqlite
        )
        sql = f"SELECT rowid FROM {table.name} AS {alias} {rest}"
        rows = database.run(sql, parameters, self._dialect)[1]
        return [version.keys[row[0] - 1] for row in rows]

    def _compute(self, sql: str, parameters: Mapping[str, Any], micros: int) -> Result:
        """Answer queries with more than columns of one table: sums, counts, joins."""
        schema = self._history.schemas.at(micros)
        names_in_sql = [name for name in schema.tables if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
        versions = [self.version(name, micros) for name in names_in_sql]
        tables = [(version.table, version.table.columns, version.in_order()) for version in versions]
        names, result_rows = RowDatabase(tables).run(sql, parameters, self._dialect)
        types = [type_of(row[number] for row in result_rows) for number in range(len(names))]
        return plain_result([*zip(names, types, strict=True)], result_rows)


def plain_result(columns: Columns, cells: Sequence[Sequence[Any]]) -> Result:
    """Return the answer with these rows."""
    writers = [value_writer(of_type) for _, of_type in columns]

    def rows(skip: int) -> Iterator[list[Row]]:
        yield [
            Row(tuple(write(cell) for write, cell in zip(writers, row, strict=True)), Cursor(0, number))
            for number, row in enumerate(cells[skip:], start=skip + 1)
        ]

    return Result(columns, rows)


def split_names(text: str) -> list[str] | None:
    """Return a list of plain column names; None for other texts."""
    if text.strip() == "*":
        return ["*"]
    matches = [_NAME.fullmatch(item) for item in text.split(",")]
    return [match["name"] for match in matches if match] if all(matches) else None


def _equal(first: str, other: str) -> bool:
    return first.lower() == other.lower()


def chosen_keys(version: Snapshot, key_set: Any) -> Sequence[Key]:
    """Return the keys of a table that a key set selects, in order."""
    if key_set.all_:
        return version.keys
    codes = [column.type.code for column in version.table.key_columns]
    single = {_key(values, codes) for values in key_set.keys}
    ranges = [_range(bounds, codes) for bounds in key_set.ranges]
    return [key for key in version.keys if key in single or any(holds(key) for holds in ranges)]


def _range(bounds: Any, codes: Sequence[str]) -> Callable[[Key], bool]:
    start_kind, end_kind = bounds.WhichOneof("start_key_type"), bounds.WhichOneof("end_key_type")
    start = _key(getattr(bounds, start_kind), codes) if start_kind else ()
    end = _key(getattr(bounds, end_kind), codes) if end_kind else ()

    def holds(key: Key) -> bool:
        # A bound with only the first columns of the key applies to these columns.
        low, high = key[: len(start)], key[: len(end)]
        is_above = low > start or (start_kind != "start_open" and low == start)
        return is_above and (high < end or (end_kind != "end_open" and high == end))

    return holds


def _key(values: Any, codes: Sequence[str]) -> Key:
    return tuple(
        int(value.string_value) if code == "INT64" else value.string_value
        for value, code in zip(values.values, codes, strict=False)
    )
