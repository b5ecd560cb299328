"""What a change stream watches, from the information schema."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cdc_platform.errors import (
    DialectMismatch,
    PartitionModeUnsupported,
    SourceNotFound,
    StreamWatchesNothing,
)
from cdc_platform.model.records import ValueCaptureType
from cdc_platform.model.table_schema import Column, ColumnType, TableSchema
from cdc_platform.sources.spanner.client import SpannerClient
from cdc_platform.sources.spanner.query import STRING, Parameter, Query
from cdc_platform.sources.spanner.settings import SpannerSettings

DEFAULT_RETENTION_S: Final = 7 * 86_400
"""Spanner's retention for streams that set none."""

_DIALECTS: Final = {"GOOGLE_STANDARD_SQL": "googlesql", "POSTGRESQL": "postgresql"}
_DURATION: Final = re.compile(r"(\d+)([smhd])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MUTABLE: Final = "MUTABLE_KEY_RANGE"
# Changes that the stream does not record, so that tables drift from the source.
_FILTERS: Final = (
    "exclude_ttl_deletes",
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "allow_txn_exclusion",
)

_DIALECT_SQL: Final = (
    "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"
)
_STREAM_SQL: Final = (
    "SELECT `all` FROM information_schema.change_streams "
    "WHERE change_stream_schema = '' AND change_stream_name = @stream"
)
_OPTIONS_SQL: Final = (
    "SELECT option_name, option_value FROM information_schema.change_stream_options "
    "WHERE change_stream_schema = '' AND change_stream_name = @stream"
)
_TABLES_SQL: Final = (
    "SELECT table_schema, table_name, all_columns FROM information_schema.change_stream_tables "
    "WHERE change_stream_schema = '' AND change_stream_name = @stream"
)
_ALL_TABLES_SQL: Final = (
    "SELECT table_schema, table_name, true FROM information_schema.tables "
    "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('INFORMATION_SCHEMA', 'SPANNER_SYS')"
)
_LISTED_COLUMNS_SQL: Final = (
    "SELECT table_schema, table_name, column_name FROM information_schema.change_stream_columns "
    "WHERE change_stream_schema = '' AND change_stream_name = @stream"
)
# Generated columns outside the key are not watched, and hidden ones are all generated.
_COLUMNS_SQL: Final = (
    "SELECT c.table_schema, c.table_name, c.column_name, c.spanner_type, c.is_generated, "
    "c.ordinal_position, k.ordinal_position "
    "FROM information_schema.columns AS c LEFT JOIN information_schema.index_columns AS k "
    "ON k.table_schema = c.table_schema AND k.table_name = c.table_name "
    "AND k.column_name = c.column_name AND k.index_type = 'PRIMARY_KEY' "
    "WHERE c.table_schema NOT IN ('INFORMATION_SCHEMA', 'SPANNER_SYS')"
)

TableName = tuple[str, str]


@dataclass(frozen=True)
class StreamDescription:
    """A change stream as it is defined at a moment; older records may have been captured otherwise.

    ``unwatched`` has the columns that the stream does not watch, for every table that has some.
    """

    dialect: str
    value_capture_type: ValueCaptureType
    retention_s: int
    options: Mapping[str, str]
    tables: tuple[TableSchema, ...]
    warnings: tuple[str, ...]
    unwatched: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class SchemaReader:
    """Reads the information schema as it is now, or was at an exact timestamp."""

    client: SpannerClient
    at_micros: int | None = None

    @property
    def settings(self) -> SpannerSettings:
        """What the source is told."""
        return self.client.settings

    def fetch_texts(self, query: Query) -> list[tuple[str | None, ...]]:
        """Return the rows of a query of the information schema as texts."""
        return self.client.fetch_texts(replace(query, read_micros=self.at_micros))


def describe_stream(
    source: SpannerClient, at_micros: int | None = None, *, may_watch_nothing: bool = False
) -> StreamDescription:
    """Return what the change stream watches, now or at a timestamp.

    Raises:
        SourceNotFound: There is no such stream.
        DialectMismatch: The database speaks another dialect than the setting says, or one not yet read.
        PartitionModeUnsupported: The stream moves key ranges between partitions.
        StreamWatchesNothing: The stream watches no table, and may not do so.
        RetentionExpired: The source no longer tells the schema of that timestamp.
    """
    client = SchemaReader(source, at_micros)
    settings = client.settings
    dialect = _checked_dialect(client)
    stream = client.fetch_texts(_stream_query(_STREAM_SQL, settings))
    if not stream:
        names = client.fetch_texts(Query("SELECT change_stream_name FROM information_schema.change_streams"))
        raise _not_found(settings, sorted(str(name) for (name,) in names))
    options = {str(k): str(v) for k, v in client.fetch_texts(_stream_query(_OPTIONS_SQL, settings))}
    if options.get("partition_mode", "").strip("'\"") == _MUTABLE:
        raise PartitionModeUnsupported(
            f"The {settings.title} has partition_mode = {_MUTABLE}, which this version cannot read. Create "
            "one without this option, which is fixed at creation, and name it in `change_stream`",
        )
    tables, unwatched = _watched_tables(client, watches_all=stream[0][0] == "true")
    if not tables and not may_watch_nothing:
        raise _watches_nothing(settings)
    return StreamDescription(
        dialect=dialect,
        value_capture_type=ValueCaptureType(options.get("value_capture_type", "OLD_AND_NEW_VALUES")),
        retention_s=retention_s(options.get("retention_period")),
        options=options,
        tables=tables,
        warnings=_warnings(options),
        unwatched=unwatched,
    )


def retention_s(text: str | None) -> int:
    """Return the seconds of a text such as `7d`; Spanner's default for none, or one of another form."""
    match = _DURATION.fullmatch(text) if text else None
    if match is None:
        return DEFAULT_RETENTION_S
    return int(match.group(1)) * _UNIT_S[match.group(2)]


def _checked_dialect(client: SchemaReader) -> str:
    settings = client.settings
    found = client.fetch_texts(Query(_DIALECT_SQL))
    spoken = found[0][0] if found else None
    dialect = _DIALECTS.get(str(spoken), str(spoken))
    if settings.dialect not in (None, dialect):
        raise DialectMismatch(
            f"{settings.database_path} speaks {dialect}, but `dialect` says {settings.dialect}. Remove the "
            "setting, or check `database`",
        )
    if dialect != "googlesql":
        raise DialectMismatch(
            f"{settings.database_path} speaks {dialect}, and this version reads googlesql only. Name a "
            "GoogleSQL database in `database`",
        )
    return dialect


def _watched_tables(
    client: SchemaReader, *, watches_all: bool
) -> tuple[tuple[TableSchema, ...], dict[str, tuple[str, ...]]]:
    """Return the watched tables, and the columns that are not watched of all tables that have some."""
    settings = client.settings
    query = Query(_ALL_TABLES_SQL) if watches_all else _stream_query(_TABLES_SQL, settings)
    watched = {(str(row[0]), str(row[1])): row[2] == "true" for row in client.fetch_texts(query)}
    listed = defaultdict(set)
    for schema, table, column in client.fetch_texts(_stream_query(_LISTED_COLUMNS_SQL, settings)):
        listed[str(schema), str(table)].add(str(column))
    columns, unwatched = defaultdict(list), defaultdict(list)
    for row in client.fetch_texts(Query(_COLUMNS_SQL)):
        name = (str(row[0]), str(row[1]))
        if name in watched and _is_watched(row, None if watched[name] else listed[name]):
            columns[name].append(_column(row))
        elif not _is_computed(row):
            unwatched[_full_name(name)].append(str(row[2]))
    tables = tuple(_table(name, columns[name]) for name in sorted(watched))
    return tables, {name: tuple(sorted(found)) for name, found in unwatched.items()}


def _is_watched(row: tuple[str | None, ...], listed: set[str] | None) -> bool:
    _, _, column, _, _, _, key_ordinal = row
    if key_ordinal is not None:
        return True
    return not _is_computed(row) and (listed is None or column in listed)


def _is_computed(row: tuple[str | None, ...]) -> bool:
    """Whether a column is a generated one outside the key, which no change stream can watch."""
    return row[4] == "ALWAYS" and row[6] is None


def _column(row: tuple[str | None, ...]) -> Column:
    _, _, name, spanner_type, _, ordinal, key_ordinal = row
    column_type = ColumnType.from_spanner_type(str(spanner_type))
    return Column(str(name), column_type, key_ordinal is not None, int(str(key_ordinal or ordinal)))


def _table(name: TableName, columns: Iterable[Column]) -> TableSchema:
    in_order = sorted(columns, key=lambda column: (not column.is_primary_key, column.ordinal))
    return TableSchema(_full_name(name), tuple(in_order))


def _full_name(name: TableName) -> str:
    schema, table = name
    return f"{schema}.{table}" if schema else table


def _stream_query(sql: str, settings: SpannerSettings) -> Query:
    return Query(sql, {"stream": Parameter(STRING, settings.change_stream)})


def _warnings(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"The change stream has {name} = true: changes that it leaves out will be missing in the tables, "
        "and comparing them with the source will fail"
        for name in _FILTERS
        if options.get(name, "").lower() == "true"
    )


def _not_found(settings: SpannerSettings, known: list[str]) -> SourceNotFound:
    there = f"There are: {', '.join(known)}" if known else "The database has none; create one"
    return SourceNotFound(f"There is no {settings.title}. Correct `change_stream`. {there}")


def _watches_nothing(settings: SpannerSettings) -> StreamWatchesNothing:
    example = f"ALTER CHANGE STREAM {settings.change_stream} SET FOR ALL"
    return StreamWatchesNothing(f"The {settings.title} watches no table. Say what it watches: {example}")
