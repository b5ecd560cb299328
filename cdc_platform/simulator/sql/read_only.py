"""Queries of clients in SQLite: they read what is in memory, and neither files nor without end."""

import sqlite3
from itertools import count
from typing import Any, Final

from cdc_platform.simulator.sql.translation import SqliteQuery
from cdc_platform.simulator.wire import problems

READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
LOOK_EVERY_STEPS: Final = 10_000
MOST_STEPS: Final = 100_000_000
"""Instructions of SQLite for one query: some seconds."""
MOST_ANSWER_BYTES: Final = 256 * 1024 * 1024
MOST_CELL_BYTES: Final = 16 * 1024 * 1024
MOST_HEAP_BYTES: Final = 1024 * 1024 * 1024
"""Memory of all of SQLite in this process, sorting included."""


def read_only(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection, filled before, that from now on reads only."""
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA hard_heap_limit = {MOST_HEAP_BYTES}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_CELL_BYTES)
    connection.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY
    )
    return connection


def answer(connection: sqlite3.Connection, query: SqliteQuery) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns' names and the rows of a query.

    Raises:
        sqlite3.Error: SQLite does not understand it, or it does more than read.
        Refusal: It takes too much work or memory.
    """
    looks = count(1)
    connection.set_progress_handler(lambda: next(looks) * LOOK_EVERY_STEPS > MOST_STEPS, LOOK_EVERY_STEPS)
    rows, size = [], 0
    try:
        cursor = connection.execute(query.text, query.values)
        for row in cursor:
            rows.append(row)
            size += sum(len(cell) if isinstance(cell, str | bytes) else 16 for cell in row)
            if size > MOST_ANSWER_BYTES:
                raise problems.not_answered(f"the answer has more than {MOST_ANSWER_BYTES:,} bytes")
    except MemoryError as error:
        raise problems.not_answered("the query needs too much memory") from error
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        raise problems.not_answered("the query takes too much work") from error
    return [str(column[0]) for column in cursor.description or ()], rows
