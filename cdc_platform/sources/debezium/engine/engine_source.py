"""Checks of the engine's source through Java's driver, which report mistakes before the engine starts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc_platform.errors import ReplicationRefused
from cdc_platform.sources.debezium.engine.partitions import Partition, check_partitions
from cdc_platform.sources.debezium.engine.slot import check_slot
from cdc_platform.sources.debezium.engine.source_connection import connect, first_row, first_text
from cdc_platform.sources.debezium.engine.uncaptured import PARENTS, UNLOGGED, UNSENT_COLUMNS, Uncaptured
from cdc_platform.sources.debezium.settings.engine_settings import MARKER_PREFIX, EngineInput

OLDEST_WITH_MARKERS: Final = 14
"""First version of PostgreSQL that delivers logical messages."""

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
    with connect(settings) as connection:
        if first_row(connection, "SELECT current_setting('wal_level')") != ("logical",):
            raise ReplicationRefused(
                "The server's log does not contain row changes: set `wal_level = logical` in the server's "
                f"configuration and restart it. Source: {settings.database_text()}"
            )
        _check_publication(connection, settings)
        return check_slot(connection, settings)


def read_comments(settings: EngineInput) -> str:
    """Return the comments of all tables and columns, as JSON lists of schema, table, column and comment.

    The column of a table's own comment is empty. Debezium's connector for PostgreSQL sends none of them.

    Raises:
        SourceError: the server cannot be reached, or rejects the query.
    """
    with connect(settings) as connection:
        return first_text(connection, COMMENTS) or "[]"


def read_tables(settings: EngineInput) -> Mapping[str, str]:
    """Return the identifiers of the database's tables, by SCHEMA.TABLE.

    They are those of the publication, unless the connector adds tables to it or creates one of all tables.
    Partitions are among them if they are captured as tables.

    Raises:
        SourceError: the server cannot be reached, or rejects the query.
    """
    with connect(settings) as connection:
        mode, publication = settings.publication_mode, settings.publication
        values = str(settings.joins_partitions).lower(), mode, mode, publication, publication
        tables: dict[str, str] = json.loads(first_text(connection, TABLES, *values) or "{}")
    return tables


def read_uncaptured(settings: EngineInput) -> Uncaptured:
    """Return the parts of the database whose changes the connector cannot capture.

    Raises:
        SourceError: the server cannot be reached or rejects the query, or a part cannot be left out either.
    """
    with connect(settings) as connection:
        own = settings.publication_mode, settings.publication
        columns = json.loads(first_text(connection, UNSENT_COLUMNS, *own) or "[]")
        unlogged = json.loads(first_text(connection, UNLOGGED) or "{}")
        uncaptured = Uncaptured(columns, unlogged, json.loads(first_text(connection, PARENTS) or "{}"))
    uncaptured.check(settings)
    return uncaptured


def emit_marker(settings: EngineInput, marker: str) -> None:
    """Write a message to the source's log, after everything committed so far.

    It is a separate transaction: after a restart the engine looks for a commit before it delivers anything,
    and skips messages outside of transactions on the way.

    Raises:
        SourceError: the server rejects the message, or would not deliver it.
    """
    with connect(settings) as connection:
        about = connection.getMetaData()
        if int(about.getDatabaseMajorVersion()) < OLDEST_WITH_MARKERS:
            raise ReplicationRefused(
                "The engine can detect that it has caught up only if the server delivers logical messages, "
                f"from version {OLDEST_WITH_MARKERS} on: let it run continuously instead. Version: "
                f"{about.getDatabaseProductVersion()}"
            )
        first_row(connection, "SELECT pg_logical_emit_message(true, ?, '')", f"{MARKER_PREFIX}.{marker}")


def _check_publication(connection: Any, settings: EngineInput) -> None:
    publication = first_row(connection, PUBLICATION, settings.publication)
    if publication is not None:
        _check_operations(settings, publication[1:])
    if settings.joins_partitions:
        partitions = json.loads(first_text(connection, PARTITIONS, settings.publication) or "[]")
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
    filtered_tables = json.loads(first_text(connection, ROW_FILTERS, settings.publication) or "[]")
    for table in filter(settings.selects, filtered_tables):
        raise ReplicationRefused(
            f"The publication sends only the rows of `{table}` that meet a condition: a row that begins to "
            "meet it arrives as a new one, without its large values, and other rows stay as a snapshot has "
            f"read them. Run `ALTER PUBLICATION {settings.publication} SET TABLE ...` without `WHERE`, or "
            f"leave the table out with `tables`. Source: {settings.database_text()}"
        )
