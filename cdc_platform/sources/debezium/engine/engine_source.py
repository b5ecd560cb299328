"""Checks of the engine's source through Java's driver, which report mistakes before the engine starts."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cdc_platform.errors import (
    AccessDenied,
    CaptureStopped,
    ReplicationRefused,
    SettingError,
    SlotInUse,
    SlotOutrun,
    SourceError,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.sources.debezium.engine.partitions import Partition, check_partitions
from cdc_platform.sources.debezium.engine.uncaptured import PARENTS, UNLOGGED, UNSENT_COLUMNS, Uncaptured
from cdc_platform.sources.debezium.settings.engine_settings import MARKER_PREFIX, EngineInput

OLDEST_WITH_MARKERS: Final = 14
"""First version of PostgreSQL that delivers logical messages."""

SLOT_FREE_WITHIN_S: Final = 5.0
"""Time in which the server notices that an engine was killed."""

CONNECTION_PROPERTIES: Final = ("sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslfactory")

STATES: Final[tuple[tuple[str, type[SourceError], str], ...]] = (
    # prefix of the SQL state, error, advice
    ("28", AccessDenied, "Check `user` and `password`, and that pg_hba.conf lets the role in."),
    ("3D", SourceNotFound, "Check `database`: the server has none of this name."),
    ("08", SourceUnreachable, "Check `host` and `port`, and that the server runs and may be reached."),
    ("57P", SourceUnreachable, "The server is starting or stopping."),
    ("53", SourceUnreachable, "The server has no connection left."),
)


COMMENTS: Final = """
    SELECT json_agg(json_build_array(n.nspname, c.relname, coalesce(a.attname, ''), d.description))
    FROM pg_description d JOIN pg_class c ON c.oid = d.objoid JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid
    WHERE d.classoid = 'pg_class'::regclass AND c.relkind IN ('r', 'p')
    AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""

TABLES: Final = """
    SELECT json_object_agg(n.nspname || '.' || c.relname, c.oid::text)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE CASE WHEN ? = 'true' THEN c.relkind IN ('r', 'p') AND NOT c.relispartition ELSE c.relkind = 'r' END
    AND c.relpersistence = 'p' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND CASE
        -- Only here the connector adds tables to a publication; elsewhere it makes at most a missing one.
        WHEN ? = 'filtered' OR ? = 'all_tables' AND NOT EXISTS (SELECT FROM pg_publication WHERE pubname = ?)
        THEN true
        ELSE EXISTS (SELECT FROM pg_publication_tables p WHERE p.pubname = ?
            AND p.schemaname = n.nspname AND p.tablename = c.relname)
    END
"""
PUBLICATION: Final = """
    SELECT pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = ?
"""
OPERATIONS: Final = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
"""The connector's and the server's names of operations, in the order of `PUBLICATION`."""
ROW_FILTERS: Final = """
    SELECT json_agg(p.schemaname || '.' || p.tablename)
    FROM pg_publication_tables p WHERE p.pubname = ? AND to_jsonb(p) ->> 'rowfilter' IS NOT NULL
"""
PARTITIONS: Final = """
    SELECT json_agg(json_build_array(n.nspname || '.' || c.relname, m.nspname || '.' || r.relname,
        EXISTS (SELECT FROM pg_publication_tables p WHERE p.pubname = ?
            AND p.schemaname = n.nspname AND p.tablename = c.relname)))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_class r ON r.oid = pg_partition_root(c.oid) JOIN pg_namespace m ON m.oid = r.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relispartition AND c.relpersistence = 'p'
"""


def check_capturable(settings: EngineInput) -> int | None:
    """Check the server's settings, publication and slot for capture.

    Returns:
        the oldest position of the log that the slot may still need; None if there is no slot.

    Raises:
        SourceError: the source cannot be captured; the error states the reason.
        SettingError: the slot belongs to another program.
    """
    with _connect(settings) as connection:
        if _first_row(connection, "SELECT current_setting('wal_level')") != ("logical",):
            raise ReplicationRefused(
                "The server's log does not contain row changes: set `wal_level = logical` in the server's "
                f"configuration and restart it. Source: {settings.database_text()}"
            )
        _check_publication(connection, settings)
        return _check_slot(connection, settings)


def read_comments(settings: EngineInput) -> str:
    """Return the comments of all tables and columns, as JSON lists of schema, table, column and comment.

    The column of a table's own comment is empty. Debezium's connector for PostgreSQL sends none of them.

    Raises:
        SourceError: the server cannot be reached, or rejects the query.
    """
    with _connect(settings) as connection:
        return _first_text(connection, COMMENTS) or "[]"


def read_tables(settings: EngineInput) -> Mapping[str, str]:
    """Return the identifiers of the database's tables, by SCHEMA.TABLE.

    They are those of the publication, unless the connector adds tables to it or creates one of all tables.
    Partitions are among them if they are captured as tables.

    Raises:
        SourceError: the server cannot be reached, or rejects the query.
    """
    with _connect(settings) as connection:
        mode, publication = settings.publication_mode, settings.publication
        values = str(settings.joins_partitions).lower(), mode, mode, publication, publication
        tables: dict[str, str] = json.loads(_first_text(connection, TABLES, *values) or "{}")
    return tables


def read_uncaptured(settings: EngineInput) -> Uncaptured:
    """Return the parts of the database whose changes the connector cannot capture.

    Raises:
        SourceError: the server cannot be reached or rejects the query, or a part cannot be left out either.
    """
    with _connect(settings) as connection:
        own = settings.publication_mode, settings.publication
        columns = json.loads(_first_text(connection, UNSENT_COLUMNS, *own) or "[]")
        unlogged = json.loads(_first_text(connection, UNLOGGED) or "{}")
        uncaptured = Uncaptured(columns, unlogged, json.loads(_first_text(connection, PARENTS) or "{}"))
    uncaptured.check(settings)
    return uncaptured


def emit_marker(settings: EngineInput, marker: str) -> None:
    """Write a message to the source's log, after everything committed so far.

    It is a separate transaction: after a restart the engine looks for a commit before it delivers anything,
    and skips messages outside of transactions on the way.

    Raises:
        SourceError: the server rejects the message, or would not deliver it.
    """
    with _connect(settings) as connection:
        about = connection.getMetaData()
        if int(about.getDatabaseMajorVersion()) < OLDEST_WITH_MARKERS:
            raise ReplicationRefused(
                "The engine can detect that it has caught up only if the server delivers logical messages, "
                f"from version {OLDEST_WITH_MARKERS} on: let it run continuously instead. Version: "
                f"{about.getDatabaseProductVersion()}"
            )
        _first_row(connection, "SELECT pg_logical_emit_message(true, ?, '')", f"{MARKER_PREFIX}.{marker}")


def _check_publication(connection: Any, settings: EngineInput) -> None:
    publication = _first_row(connection, PUBLICATION, settings.publication)
    if publication is not None:
        _check_operations(settings, publication[1:])
    if settings.joins_partitions:
        partitions = json.loads(_first_text(connection, PARTITIONS, settings.publication) or "[]")
        check_partitions(
            settings,
            [Partition(*fields) for fields in partitions],
            joins_partitions=publication is None or publication[0] == "t",
        )
    # The connector itself lists the tables of a `filtered` publication, without conditions.
    if settings.publication_mode != "filtered":
        _check_row_filters(connection, settings)
    if settings.publication_mode == "disabled" and publication is None:
        raise ReplicationRefused(
            "The publication does not exist, and `publication.autocreate.mode` is `disabled`: create it with "
            f"`CREATE PUBLICATION {settings.publication} FOR TABLE ...`. Source: {settings.database_text()}"
        )


def _check_operations(settings: EngineInput, are_sent: Sequence[str | None]) -> None:
    sent = {operation for operation, is_sent in zip(OPERATIONS, are_sent, strict=True) if is_sent == "t"}
    missing = [operation for operation in OPERATIONS if operation not in sent | settings.skipped_operations]
    if missing:
        names, every = ", ".join(map(OPERATIONS.__getitem__, missing)), ", ".join(OPERATIONS.values())
        raise ReplicationRefused(
            f"The publication does not send all changes ({names}), so the lake would differ from the source. "
            f"Run `ALTER PUBLICATION {settings.publication} SET (publish = '{every}')`, or set the property "
            f"`skipped.operations` to `{','.join(missing)}`. Source: {settings.database_text()}"
        )


def _check_row_filters(connection: Any, settings: EngineInput) -> None:
    filtered_tables = json.loads(_first_text(connection, ROW_FILTERS, settings.publication) or "[]")
    for table in filter(settings.selects, filtered_tables):
        raise ReplicationRefused(
            f"The publication sends only the rows of `{table}` that meet a condition: a row that begins to "
            "meet it arrives as a new one, without its large values, and other rows stay as a snapshot has "
            f"read them. Run `ALTER PUBLICATION {settings.publication} SET TABLE ...` without `WHERE`, or "
            f"leave the table out with `tables`. Source: {settings.database_text()}"
        )


def _check_slot(connection: Any, settings: EngineInput) -> int | None:
    """Check that the slot belongs to this engine and is free; the engine creates a missing one."""
    query = (
        "SELECT plugin, database, active, wal_status, restart_lsn - '0/0' "
        "FROM pg_replication_slots WHERE slot_name = ?"
    )
    deadline = time.monotonic() + SLOT_FREE_WITHIN_S
    while (slot := _first_row(connection, query, settings.slot)) is not None:
        plugin, database, is_active, wal_status, restart_lsn = slot
        if (plugin, database) != ("pgoutput", settings.database):
            raise SettingError(
                "input.engine.slot",
                f"names a slot of something else, of the plugin `{plugin}` and the database `{database}`: "
                f"choose another name. Source: {settings.database_text()}",
            )
        if wal_status == "lost":
            raise SlotOutrun(
                "The slot has lost changes: the server has removed log that it needed "
                "(`max_slot_wal_keep_size`). Drop the slot, and set `snapshot` to `when_needed`, which reads "
                "all rows again, or begin with a new spool and a new lake. "
                f"Source: {settings.database_text()}"
            )
        if is_active != "t":
            return int(restart_lsn) if restart_lsn is not None else None
        if time.monotonic() > deadline:
            raise SlotInUse(
                "Another engine or connector reads the slot: stop it, or choose another `slot` with its own "
                f"spool. Source: {settings.database_text()}"
            )
        time.sleep(0.2)
    return None


@contextmanager
def _connect(settings: EngineInput) -> Iterator[Any]:
    import jpype

    properties = jpype.JClass("java.util.Properties")()
    login = {"user": settings.user, "password": settings.password, "loginTimeout": "30"} | {
        name: settings.properties[f"database.{name}"]
        for name in CONNECTION_PROPERTIES
        if f"database.{name}" in settings.properties
    }
    for name, value in login.items():
        properties.setProperty(name, value)
    address = f"jdbc:postgresql://{settings.host}:{settings.port}/{settings.database}"
    try:
        connection = jpype.JClass("org.postgresql.Driver")().connect(address, properties)
        try:
            yield connection
        finally:
            connection.close()
    except jpype.JClass("java.sql.SQLException") as error:
        raise _meaning(error, settings) from error


def _meaning(error: Any, settings: EngineInput) -> SourceError:
    state, text = str(error.getSQLState()), str(error.getMessage())
    for beginning, kind, advice in STATES:
        if state.startswith(beginning):
            return kind(f"{advice} Source: {settings.database_text()}: {text}")
    return CaptureStopped(f"The source rejects an engine query. Source: {settings.database_text()}: {text}")


def _first_text(connection: Any, query: str, *values: str) -> str | None:
    """Return the first value of a query's result; None if it has no row, or NULL."""
    row = _first_row(connection, query, *values)
    return row[0] if row is not None else None


def _first_row(connection: Any, query: str, *values: str) -> tuple[str | None, ...] | None:
    """Return the first row of a query's result, as texts."""
    statement = connection.prepareStatement(query)
    try:
        for number, value in enumerate(values, 1):
            statement.setString(number, value)
        rows = statement.executeQuery()
        if not rows.next():
            return None
        count = int(rows.getMetaData().getColumnCount())
        texts = [rows.getString(number) for number in range(1, count + 1)]
        return tuple(None if text is None else str(text) for text in texts)
    finally:
        statement.close()
