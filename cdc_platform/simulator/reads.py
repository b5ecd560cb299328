"""Plain reads: tables, or parts of them, as they were at a moment."""

import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from cdc_platform.model.table_schema import ColumnType
from cdc_platform.simulator import problems
from cdc_platform.simulator.chunks import Position, Row
from cdc_platform.simulator.history import History
from cdc_platform.simulator.information import type_of
from cdc_platform.simulator.schema import SimColumn, SimTable
from cdc_platform.simulator.transactions import Key
from cdc_platform.simulator.transactions import Row as TableRow
from cdc_platform.simulator.values import plain, value_writer
from cdc_platform.simulator.wire import plain_value

Columns: TypeAlias = list[tuple[str, ColumnType]]

_ROWS_PER_BATCH: Final = 1000
_KEPT_VERSIONS: Final = 6
_SELECT: Final = re.compile(
    r"""\s*SELECT\s+(?P<columns>.*?)\s+FROM\s+(?P<table>[`"\w.]+)(?:\s+(?:AS\s+)?(?!WHERE|ORDER|LIMIT)\w+)?"""
    r"""(?P<rest>(?:\s+(?:WHERE|ORDER|LIMIT)\b.*)?)\s*;?\s*""",
    re.IGNORECASE | re.DOTALL,
)
_ORDER: Final = re.compile(r"\s*ORDER\s+BY\s+(?P<columns>[^()]*)", re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r"""\s*(?:\w+\.)?([`"]?)(?P<name>\w+)\1\s*(?:ASC\s*)?""", re.IGNORECASE)
_DOLLAR: Final = re.compile(r"\$(\d+)")
_CAST: Final = re.compile(r"::\s*\w+(?:\[\])?")


@dataclass(frozen=True)
class Version:
    """The rows of a table at a moment, in the order of the primary key."""

    table: SimTable
    rows: Mapping[Key, TableRow]

    @cached_property
    def keys(self) -> list[Key]:
        """The keys in their order."""
        return sorted(self.rows)


@dataclass(frozen=True)
class Result:
    """The columns of an answer, and what yields its rows after a number of them."""

    columns: Columns
    rows: Callable[[int], Iterator[list[Row]]]


class TableReads:
    """Answers reads of the simulated database's tables."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._versions: OrderedDict[tuple[int, int], Version] = OrderedDict()

    def version(self, name: str, micros: int) -> Version:
        """Return a table at a moment.

        Raises:
            Refusal: It was not there.
        """
        schema = self._history.schemas.at(micros)
        found = name.replace("`", "").replace('"', "").removeprefix("public.")
        table = next((table for table in schema.tables.values() if _equal(table.name, found)), None)
        if table is None:
            raise problems.table_not_found(self._history.settings.dialect, found)
        with self._lock:
            version = self._versions.get((table.number, micros))
            if version is None:
                version = Version(table, self._history.rows_at(table.number, micros))
                self._versions[table.number, micros] = version
                if len(self._versions) > _KEPT_VERSIONS:
                    self._versions.popitem(last=False)
            return version

    def answer(self, sql: str, parameters: Mapping[str, Any], micros: int) -> Result:
        """Return the answer to a query of tables.

        Raises:
            Refusal: It cannot be answered.
        """
        select = _SELECT.fullmatch(sql)
        if select is None:
            return self._computed(sql, parameters, micros)
        names = split_names(select["columns"])
        if names is None:
            return self._computed(sql, parameters, micros)
        version = self.version(select["table"], micros)
        columns = self.columns(version.table, names)
        keys = self._keys(version, select["rest"], sql, parameters)
        return self.result(version, columns, keys)

    def columns(self, table: SimTable, names: Sequence[str]) -> list[SimColumn]:
        """Return the columns of names; `*` is all."""
        if list(names) == ["*"]:
            return list(table.columns)
        found = []
        for name in names:
            column = next((column for column in table.columns if _equal(column.name, name)), None)
            if column is None:
                raise problems.column_not_found(self._history.settings.dialect, name)
            found.append(column)
        return found

    def result(self, version: Version, columns: Sequence[SimColumn], keys: Sequence[Key]) -> Result:
        """Return the rows of keys with some of their columns."""
        writers = [(column.slot, value_writer(column.type)) for column in columns]

        def rows(skip: int) -> Iterator[list[Row]]:
            for begin in range(skip, len(keys), _ROWS_PER_BATCH):
                batch = keys[begin : begin + _ROWS_PER_BATCH]
                yield [
                    Row(
                        tuple([write(row[slot] if slot < len(row) else None) for slot, write in writers]),
                        Position(0, number),
                    )
                    for number, row in enumerate((version.rows[key] for key in batch), start=begin + 1)
                ]

        return Result([(column.name, column.type) for column in columns], rows)

    def _keys(self, version: Version, rest: str, sql: str, parameters: Mapping[str, Any]) -> Sequence[Key]:
        """Return the keys of the rows that conditions choose, in the order that is asked for."""
        order = _ORDER.fullmatch(rest)
        ordered = split_names(order["columns"]) if order else None
        key_names = [column.name for column in version.table.key_columns]
        if not rest.strip() or (ordered is not None and ordered == key_names[: len(ordered)]):
            return version.keys
        table = version.table
        with _Database([version]) as database:
            rows = database.run(f'SELECT rowid FROM "{table.name}" {rest}', parameters)[1]  # noqa: S608
        return [version.keys[row[0] - 1] for row in rows]

    def _computed(self, sql: str, parameters: Mapping[str, Any], micros: int) -> Result:
        """Answer what is more than columns of one table: sums, counts, joins."""
        schema = self._history.schemas.at(micros)
        mentioned = [name for name in schema.tables if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
        with _Database([self.version(name, micros) for name in mentioned]) as database:
            names, found = database.run(sql, parameters)
        columns = [(name, type_of(row[number] for row in found)) for number, name in enumerate(names)]

        def rows(skip: int) -> Iterator[list[Row]]:
            yield [
                Row(
                    tuple(plain_value(str(cell) if isinstance(cell, int) else cell) for cell in cells),
                    Position(0, number),
                )
                for number, cells in enumerate(found[skip:], start=skip + 1)
            ]

        return Result(columns, rows)


class _Database:
    """Versions of tables in SQLite, for as long as one query takes; `rowid` is the place in key order."""

    def __init__(self, versions: Sequence[Version]) -> None:
        self._connection = sqlite3.connect(":memory:")
        for version in versions:
            self._fill(version)

    def __enter__(self) -> "_Database":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, sql: str, parameters: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the columns' names and the rows of a query."""
        text = _CAST.sub("", _DOLLAR.sub(r"@p\1", sql)).rstrip().rstrip(";")
        try:
            cursor = self._connection.execute(text, dict(parameters))
            return [str(column[0]) for column in cursor.description or ()], cursor.fetchall()
        except sqlite3.Error as error:
            raise problems.syntax_error(str(error)) from error

    def _fill(self, version: Version) -> None:
        table = version.table
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        marks = ", ".join("?" * len(table.columns))
        self._connection.execute(f'CREATE TABLE "{table.name}" ({names})')
        rows = ([_stored(row, column) for column in table.columns] for row in _in_order(version))
        self._connection.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', rows)  # noqa: S608


def _in_order(version: Version) -> Iterator[TableRow]:
    return (version.rows[key] for key in version.keys)


def _stored(row: TableRow, column: SimColumn) -> Any:
    cell = row[column.slot] if column.slot < len(row) else None
    if cell is None or isinstance(cell, int | float | bytes):
        return cell
    value = plain(column.type, cell)
    return str(value) if isinstance(value, list) else value


def split_names(text: str) -> list[str] | None:
    """Return a list of plain column names, None when it is more than that."""
    if text.strip() == "*":
        return ["*"]
    matches = [_NAME.fullmatch(item) for item in text.split(",")]
    return [match["name"] for match in matches if match] if all(matches) else None


def _equal(one: str, other: str) -> bool:
    return one.lower() == other.lower()
