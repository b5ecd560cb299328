"""What clients send runs in SQLite, and neither writes files nor works without end."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.simulator.sql import read_only as module
from cdc_platform.simulator.sql.read_only import answer, read_only
from cdc_platform.simulator.sql.row_database import RowDatabase
from cdc_platform.simulator.sql.translation import SqliteQuery
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.settings import Dialect

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A database with a table of one row."""
    found = sqlite3.connect(":memory:")
    found.execute("CREATE TABLE t (a)")
    found.execute("INSERT INTO t VALUES (7)")
    yield read_only(found)
    found.close()


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    "sql",
    [
        "VACUUM INTO 'FILE'",
        "ATTACH 'FILE' AS stolen",
        "PRAGMA temp_store_directory = '/'",
        "CREATE TABLE t (a)",
        "DELETE FROM sqlite_master",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('FILE')",
    ],
)
def test_a_client_writes_nothing(tmp_path: Path, dialect: Dialect, sql: str) -> None:
    """Whatever is no read is refused, and leaves no file."""
    file = tmp_path / "file"
    with pytest.raises(Refusal, match=r"plain reads only|[Ss]yntax error"):
        RowDatabase([]).run(sql.replace("FILE", str(file)), {}, dialect)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (NUMBERS + "SELECT count(*) FROM n", "too much work"),
        (NUMBERS + "SELECT i FROM n", "too much work|more than"),
        (NUMBERS + "SELECT hex(zeroblob(1000000)) FROM n", "more than 1,000,000 bytes"),
        (NUMBERS + "SELECT i, zeroblob(1000000) AS z FROM n ORDER BY z", "too much (?:work|memory)"),
    ],
)
def test_a_query_without_end_is_ended(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, sql: str, told: str
) -> None:
    """Work and the size of the answer have bounds, and the next query is answered."""
    monkeypatch.setattr(module, "MOST_STEPS", 1_000_000)
    monkeypatch.setattr(module, "MOST_ANSWER_BYTES", 1_000_000)
    with pytest.raises(Refusal, match=told):
        answer(connection, SqliteQuery(sql, {}))
    assert answer(connection, SqliteQuery("SELECT a FROM t", {})) == (["a"], [(7,)])


def test_a_huge_value_is_refused(connection: sqlite3.Connection) -> None:
    """One cell cannot take all memory."""
    with pytest.raises(sqlite3.Error, match="too big"):
        answer(connection, SqliteQuery("SELECT hex(zeroblob(900000000))", {}))
