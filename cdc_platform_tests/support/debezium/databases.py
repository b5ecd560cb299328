"""Databases of a test's server: made, filled, and read as the truth."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg2

from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform_tests.servers.postgresql import SUPERUSER, Cluster

Step = str | tuple[str, tuple[str | None, ...]]
"""A statement, with values where it needs them. `@NAME ` in front names the session; each commits at once,
until it says BEGIN."""

SLOTS: Final = """
    SELECT pg_terminate_backend(active_pid), pg_sleep(0.2)
    FROM pg_replication_slots WHERE database = %s AND active
"""
DROP_SLOTS: Final = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated <> '',
           coalesce(a.attnum = ANY (i.indkey), false)
    FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
TABLES: Final = """
    SELECT quote_ident(schemaname) || '.' || quote_ident(tablename), schemaname || '.' || tablename
    FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""


def connect(server: Cluster, database: str, *, by_statement: bool = True) -> Any:
    """Return a connection; it commits each statement, until one says BEGIN, unless configured otherwise."""
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user=SUPERUSER, dbname=database)
    connection.autocommit = by_statement
    return connection


@contextmanager
def database(server: Cluster, name: str) -> Iterator[str]:
    """Make a database that is there while the context is, and its slots with it."""
    with closing(connect(server, "postgres")) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            cursor.execute(SLOTS, (name,))
            cursor.execute(DROP_SLOTS, (name,))
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def settings_for(server: Cluster, name: str, spool: Path, **properties: str) -> EngineInput:
    """Return the settings of an engine that captures all tables of a database, and those created later."""
    return EngineInput(
        spool=str(spool),
        host="127.0.0.1",
        port=server.port,
        database=name,
        user=SUPERUSER,
        slot=name,
        with_schemas=False,
        properties={"publication.autocreate.mode": "all_tables"} | properties,
    )


def play(server: Cluster, name: str, steps: Sequence[Step]) -> None:
    """Run the statements, each in the session that it names."""
    with ExitStack() as stack:
        sessions: dict[str, Any] = {}
        for step in steps:
            statement, values = (step, None) if isinstance(step, str) else step
            session = ""
            if statement.startswith("@"):
                session, statement = statement[1:].split(" ", 1)
            if session not in sessions:
                connection = stack.enter_context(closing(connect(server, name)))
                sessions[session] = stack.enter_context(closing(connection.cursor()))
            sessions[session].execute(statement, values)


def columns_of(cursor: Any, quoted: str) -> list[dict[str, Any]]:
    """Return the columns of a table: name, type, not_null, generated, is_key."""
    cursor.execute(COLUMNS, (quoted,))
    names = ("name", "type", "not_null", "generated", "is_key")
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def truth(cursor: Any) -> dict[str, Any]:
    """Return columns and rows of all tables of a database; values are the server's texts."""
    cursor.execute("SET timezone = 'UTC'")
    cursor.execute(TABLES)
    tables = {}
    for quoted, plain in cursor.fetchall():
        columns = columns_of(cursor, quoted)
        names = ['"' + column["name"].replace('"', '""') + '"' for column in columns]
        texts = ", ".join(f"{column}::text" for column in names)
        cursor.execute(f"SELECT {texts} FROM {quoted} ORDER BY 1, 2")
        tables[plain] = {"columns": columns, "rows": [list(row) for row in cursor.fetchall()]}
    return tables
