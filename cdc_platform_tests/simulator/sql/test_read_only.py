"""Queries of clients run in SQLite, and neither write files nor work without end."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.simulator.sql import read_only as module
from cdc_platform.simulator.sql.database import Statement
from cdc_platform.simulator.sql.read_only import answer, read_only
from cdc_platform.simulator.sql.reads import RowDatabase
from cdc_platform.simulator.sql.translation import SqliteQuery
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.simulator.histories import simulated

PRODUCT = "FROM t a, t b, t c, t d, t e"
"""Of 100 rows each."""


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A database with a table of numbers, and one with the largest text that Spanner has."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (a)")
    database.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(100)])
    database.execute("CREATE TABLE large (body)")
    database.execute("INSERT INTO large VALUES (?)", ("0" * 10_000_000,))
    yield read_only(database)
    database.close()


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
    """Anything but a read is refused, and leaves no file."""
    file = tmp_path / "file"
    with pytest.raises(Refusal, match=r"plain reads only|[Ss]yntax error"):
        RowDatabase([]).run(sql.replace("FILE", str(file)), {}, dialect)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        (f"SELECT count(*) {PRODUCT}", "too much work"),
        (f"SELECT a.a {PRODUCT}", "too much work|more than"),
        (f"SELECT '' AS z {PRODUCT}", "too much work|more than"),
        (f"SELECT body {PRODUCT}, large", "more than 1,000,000 bytes"),
        (f"SELECT body || a.a AS z {PRODUCT}, large ORDER BY z", "too much (?:work|memory)"),
    ],
)
def test_a_query_without_end_is_ended(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, sql: str, text: str
) -> None:
    """Work and the size of the answer have bounds, and the next query is answered."""
    monkeypatch.setattr(module, "MAX_STEPS", 1_000_000)
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1_000_000)
    with pytest.raises(Refusal, match=text):
        answer(connection, SqliteQuery(sql, {}))
    assert answer(connection, SqliteQuery("SELECT sum(a) AS a FROM t", {})) == (["a"], [(4950,)])


def test_a_huge_value_is_refused(connection: sqlite3.Connection) -> None:
    """One cell cannot take all memory."""
    with pytest.raises(sqlite3.Error, match="too big"):
        answer(
            connection,
            SqliteQuery("SELECT body || body || body || body || body || body || body FROM large", {}),
        )


def test_a_large_value_is_read(connection: sqlite3.Connection) -> None:
    """A cell of the size that Spanner allows is compared and returned."""
    query = "SELECT body, length(body) FROM large WHERE body >= '0' ORDER BY upper(body)"
    assert answer(connection, SqliteQuery(query, {}))[1] == [("0" * 10_000_000, 10_000_000)]


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("hex(zeroblob(60000)) LIKE '%'||replace(hex(zeroblob(2000)),'0','0_')||'1%'", "like|hex|replace"),
        ("instr(hex(zeroblob(400000)), hex(zeroblob(100000))||'1')", "instr|hex"),
        ("body LIKE '%0_0_0_1%'", "like"),
        ("body NOT LIKE '%!%1' ESCAPE '!'", "like"),
        ("body GLOB '*0?0?1*'", "glob"),
        ("body MATCH body", "match"),
        ("body REGEXP body", "regexp"),
        ("body -> '$'", "->"),
        ("replace(body, substr(body, 1, 5000000) || '1', '')", "replace"),
        ("trim(body, body)", "trim"),
        ("printf('%900000000d', 1)", "printf"),
        ("group_concat(body)", "group_concat"),
        ("randomblob(900000000)", "randomblob"),
        ("json_extract(body, '$')", "json_extract"),
        ("load_extension('x')", "load_extension"),
    ],
)
def test_a_function_without_bound_is_refused_by_name(
    connection: sqlite3.Connection, expression: str, function: str
) -> None:
    """Functions and operators that take more than linear time are refused."""
    with pytest.raises(sqlite3.Error, match=rf"(?i)function:? (?:{function})"):
        answer(connection, SqliteQuery(f"SELECT {expression} FROM large", {}))


def test_every_function_on_the_list_is_quick(connection: sqlite3.Connection) -> None:
    """None of them, nor of the operators, takes a second for the largest value."""
    names = sorted(module.FUNCTIONS - {"char", "count"})
    calls = [
        f"{name}(body)"
        for name in names
        if name not in {"mod", "nullif", "ifnull", "coalesce", "substr", "iif"}
    ]
    calls += [
        "substr(body, 5, 9000000)",
        "mod(7, 2)",
        "nullif(body, body)",
        "ifnull(body, body)",
        "char(1)",
        "count(*)",
    ]
    calls += [
        "body = body || ''",
        "body < body || '1'",
        "CAST(body AS INTEGER)",
        "body + 0",
        "body IN (body, '1')",
    ]
    calls += ["coalesce(NULL, body)", "iif(body, body, body)", "body COLLATE NOCASE = body || ''"]
    for call in calls:
        started = time.monotonic()
        answer(connection, SqliteQuery(f"SELECT {call} FROM large", {}))
        assert time.monotonic() - started < 3, call


def test_few_slow_instructions_are_ended_by_the_clock(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query whose every instruction is slow ends long before it has done as many as are allowed."""
    monkeypatch.setattr(module, "MAX_SECONDS", 0.5)
    started = time.monotonic()
    with pytest.raises(Refusal, match="too much work"):
        answer(connection, SqliteQuery(f"SELECT sum(length(upper(body || a.a))) {PRODUCT}, large", {}))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    "sql",
    [
        "WITH "
        + ", ".join(["a0 AS (SELECT 1)", *(f"a{n + 1} AS (SELECT 1 FROM a{n} p, a{n} q)" for n in range(30))])
        + " SELECT 1 FROM a30",
        "SELECT x+x AS x FROM (" * 12 + "SELECT 1 AS x" + ")" * 12,
        "SELECT a FROM t UNION ALL SELECT a FROM t",
        "SELECT a FROM t WHERE a IN (SELECT a FROM t)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    ],
)
def test_what_grows_while_it_is_prepared_is_refused(dialect: Dialect, sql: str) -> None:
    """A query reads tables, not queries: those SQLite copies wherever they are named, before it counts."""
    with pytest.raises(Refusal, match="a query has one SELECT"):
        RowDatabase([]).run(sql, {}, dialect)


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        (Dialect.POSTGRESQL, "SELECT 1 AS ` '` , SELECT 2 '"),
        (Dialect.GOOGLESQL, "SELECT [ '] , SELECT 2 '"),
        (Dialect.GOOGLESQL, "SELECT '\\"),
        (Dialect.POSTGRESQL, 'SELECT "a'),
    ],
)
def test_a_stray_quote_hides_nothing(dialect: Dialect, sql: str) -> None:
    """SQLite sees the same literals and names as the translation, so that no keyword hides in one."""
    with pytest.raises(Refusal, match="does not begin a literal or a name"):
        RowDatabase([]).run(sql, {}, dialect)


@pytest.mark.parametrize(
    "table", ["json_each('[1]')", "sqlite_master", "generate_series(1, 9)", "pragma_page_size"]
)
def test_only_the_tables_are_read(connection: sqlite3.Connection, table: str) -> None:
    """Neither functions that are tables nor SQLite's own tables are."""
    with pytest.raises(sqlite3.Error):
        answer(connection, SqliteQuery(f"SELECT * FROM {table}", {}))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT" + " " * 29_000 + "x",
        "/*" * 14_000,
        "\\'" * 14_000,
        "SELECT x FROM t ORDER BY" + " " * 29_000 + "(",
    ],
)
@pytest.mark.parametrize("dialect", list(Dialect))
def test_no_text_takes_long_to_split(dialect: Dialect, text: str) -> None:
    """The regular expressions see texts of bounded length, and a longer one is refused."""
    database = simulated(1, dialect=dialect)
    started = time.monotonic()
    with pytest.raises(Refusal):
        database.database.answer(Statement(text, read_micros=database.now_micros))
    assert time.monotonic() - started < 10
    with pytest.raises(Refusal, match="more than 30,000 characters"):
        Statement(text * 3)
