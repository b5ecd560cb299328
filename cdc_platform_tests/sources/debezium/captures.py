"""Captures of a real engine on a real server, as golden files.

Run it as `python -m cdc_platform_tests.sources.debezium.captures FOLDER`. Each case has a database of its own. Its events go to NAME.jsonl, and the rows and columns that the server has
in the end to NAME.truth.json. Names of cases behind the folder take those alone.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg2

from cdc_platform.errors import CaptureStopped
from cdc_platform.sources.debezium.engine_process import capture_until_caught_up
from cdc_platform.sources.debezium.engine_settings import EngineSettings
from cdc_platform.sources.debezium.spool import Spool
from cdc_platform_tests.servers.postgresql import LOGICAL, SUPERUSER, Cluster, cluster, postgresql_programs
from cdc_platform_tests.sources.debezium.captured_cases import KEYS, TYPED, Case, Step
from cdc_platform_tests.sources.debezium.captured_traffic import TRAFFIC

CASES: Final = [*TYPED, KEYS, *TRAFFIC]

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


def connect(server: Cluster, database: str) -> Any:
    """Return a connection that commits each statement, until one says BEGIN."""
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user=SUPERUSER, dbname=database)
    connection.autocommit = True
    return connection


@contextmanager
def database(server: Cluster, name: str) -> Iterator[str]:
    """Make a database that is there while the context is."""
    with closing(connect(server, "postgres")) as connection:
        connection.cursor().execute(f"CREATE DATABASE {name}")
        yield name
        cursor = connection.cursor()
        cursor.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
            (name,),
        )
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


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


def run_engine(settings: EngineSettings, *, may_fail: bool = False) -> None:
    """Run an engine until it has caught up."""
    with suppress(*([CaptureStopped] if may_fail else [])):
        capture_until_caught_up(settings, timeout_s=120)


def truth(server: Cluster, name: str) -> dict[str, Any]:
    """Return columns and rows of all tables of a database; values are the server's texts."""
    with closing(connect(server, name)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.execute(TABLES)
        tables = {}
        for quoted, plain in cursor.fetchall():
            cursor.execute(COLUMNS, (quoted,))
            columns = [
                dict(zip(("name", "type", "not_null", "generated", "is_key"), row, strict=True))
                for row in cursor.fetchall()
            ]
            names = ['"' + column["name"].replace('"', '""') + '"' for column in columns]
            texts = ", ".join(f"{column}::text" for column in names)
            cursor.execute(f"SELECT {texts} FROM {quoted} ORDER BY 1, 2")
            tables[plain] = {"columns": columns, "rows": [list(row) for row in cursor.fetchall()]}
        return tables


def capture_case(server: Cluster, case: Case, folder: Path) -> None:
    """Capture a case into a folder."""
    name = case.name
    with database(server, name), TemporaryDirectory() as spool:
        settings = EngineSettings(
            spool=spool,
            host="127.0.0.1",
            port=server.port,
            database=name,
            user=SUPERUSER,
            slot=name,
            with_schemas=case.with_schemas,
            # A publication of all tables takes in what is created later.
            properties={"publication.autocreate.mode": "all_tables"} | case.properties,
            snapshot=case.snapshot,
        )
        play(server, name, case.setup)
        run_engine(settings)
        play(server, name, case.steps)
        run_engine(settings, may_fail=case.stops)
        lines = [line for file in Spool(settings.folder()).files() for line in file.lines()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        told = truth(server, name)
        if case.stops:
            told["failure"] = json.loads(Spool(settings.folder()).failure.read_text())
        (folder / f"{name}.truth.json").write_text(
            json.dumps(told, indent=0, ensure_ascii=False), encoding="utf-8"
        )


def main(folder: Path, names: Sequence[str]) -> None:
    """Capture the named cases, or all."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = postgresql_programs()
    assert programs is not None, "PostgreSQL is not installed"
    with TemporaryDirectory() as own, cluster(programs, Path(own) / "cluster", settings=LOGICAL) as server:
        for case in CASES:
            if not names or case.name in names:
                started = time.monotonic()
                capture_case(server, case, folder)
                sys.stdout.write(f"{case.name}: {case.says} ({time.monotonic() - started:.1f} s)\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
