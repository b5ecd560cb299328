"""Restricted execution of clients' queries in SQLite: in memory, read-only, without files, and within limits.

SQLite counts instructions but checks no limit within one. So queries may call only functions that run in
linear time in their arguments, whose sizes are limited, and a timer limits the instructions.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Timer
from typing import Any, Final

from cdc_platform.simulator.sql.translation import SqliteQuery
from cdc_platform.simulator.wire.problems import not_answered

FUNCTIONS: Final = frozenset(
    {
        "abs",
        "avg",
        "ceil",
        "ceiling",
        "char",
        "coalesce",
        "count",
        "floor",
        "ifnull",
        "iif",
        "length",
        "lower",
    }
    | {"max", "min", "mod", "nullif", "round", "sign", "sqrt", "substr", "sum", "upper"}
)
"""Functions that queries may call: those shared by Spanner and SQLite with linear run time.

This excludes `like`, `instr`, `replace` and `trim`, whose time is the product of two sizes, and functions
that create values of any size from a number. LIKE, GLOB and MATCH are functions. `char` is for booleans.
"""
LOOK_EVERY_STEPS: Final = 10_000
MAX_STEPS: Final = 100_000_000
"""Instructions of SQLite for one query: some seconds, if none has large values."""
MAX_SECONDS: Final = 20.0
"""Limit for one query, regardless of its instructions; none of them takes more than a second or two."""
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
_OBJECT_BYTES: Final = 56
"""Memory of a row or a cell in addition to its characters."""
MAX_VALUE_BYTES: Final = 64 * 1024 * 1024
"""Limit for a value or a row; a cell of Spanner has up to 10 MB."""
MAX_HEAP_BYTES: Final = 1024 * 1024 * 1024
"""Memory of all SQLite databases in this process, including sorting."""


def read_only(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Make a filled connection read-only, and return it."""
    # A query that runs out of memory rolls back uncommitted data.
    connection.commit()
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    places = ("main", "information_schema")
    databases = {name for _, name, _ in connection.execute("PRAGMA database_list")}
    tables = {
        name
        for place in databases.intersection(places)
        for (name,) in connection.execute(f"SELECT name FROM {place}.sqlite_master")
    }

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        is_allowed = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and first in tables)
            or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    return connection


@contextmanager
def _ended_in_time(connection: sqlite3.Connection) -> Iterator[None]:
    timer = Timer(MAX_SECONDS, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # before the connection can be closed


def _size_of(cell: Any) -> int:
    return _OBJECT_BYTES + len(cell) if isinstance(cell, str | bytes) else _OBJECT_BYTES


def answer(connection: sqlite3.Connection, query: SqliteQuery) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns' names and the rows of a query.

    Raises:
        sqlite3.Error: SQLite rejects it, or it does more than read.
        Refusal: it takes too much work or memory.
    """
    looks = count(1)
    connection.set_progress_handler(lambda: next(looks) * LOOK_EVERY_STEPS > MAX_STEPS, LOOK_EVERY_STEPS)
    rows, size = [], 0
    try:
        with _ended_in_time(connection):
            cursor = connection.execute(query.text, query.values)
            for row in cursor:
                rows.append(row)
                size += _OBJECT_BYTES + sum(_size_of(cell) for cell in row)
                if size > MAX_ANSWER_BYTES:
                    raise not_answered(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
    except MemoryError as error:
        raise not_answered("the query needs too much memory") from error
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        raise not_answered("the query takes too much work") from error
    return [str(column[0]) for column in cursor.description or ()], rows
