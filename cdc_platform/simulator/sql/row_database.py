"""Rows of simulated tables in SQLite, which evaluates conditions, orders and sums."""

import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from cdc_platform.simulator.history.schema import SimColumn, SimTable
from cdc_platform.simulator.history.transactions import Row
from cdc_platform.simulator.sql.read_only import answer, read_only
from cdc_platform.simulator.sql.translation import to_sqlite
from cdc_platform.simulator.wire.problems import syntax_error
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform.simulator.wire.values import as_json

Filling: TypeAlias = tuple[SimTable, Sequence[SimColumn], Iterable[Row]]
"""A table, the required columns, and its rows in the order of the key."""


class RowDatabase:
    """Tables in memory, under their own names; safe to use from several threads."""

    def __init__(self, tables: Iterable[Filling]) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        for table, columns, rows in tables:
            names = ", ".join(f'"{column.name}"' for column in columns)
            marks = ", ".join("?" * len(columns))
            self._connection.execute(f'CREATE TABLE "{table.name}" ({names})')
            cells = ([_stored(row, column) for column in columns] for row in rows)
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


def _stored(row: Row, column: SimColumn) -> Any:
    cell = row[column.slot] if column.slot < len(row) else None
    if cell is None or isinstance(cell, int | float | bytes):
        return cell
    value = as_json(column.type, cell)
    return str(value) if isinstance(value, list) else value
