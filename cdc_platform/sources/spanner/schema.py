"""The tables and columns that a change stream watches, from the information schema."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cdc_platform.errors import DialectMismatch, SettingError, SourceNotFound, StreamWatchesNothing
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.connection import Texts
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.information_schema import (
    INFORMATION_SCHEMAS,
    STREAM_NAMES,
    InformationSchema,
)
from cdc_platform.sources.spanner.spanner_settings import Dialect, SpannerSettings

DEFAULT_RETENTION_S: Final = 7 * 86_400
"""Spanner's retention for streams that set none."""
_NamesByTable = Mapping[str, tuple[str, ...]]

_DURATION: Final = re.compile(r"(\d+)([smhd])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, kw_only=True)
class StreamDescription(SchemaRead):
    """A change stream as it is defined at a moment; older records may have been captured otherwise."""

    dialect: str
    value_capture_type: ValueCaptureType
    retention_s: int


def describe_stream(
    client: SpannerClient, at_micros: int | None = None, *, may_watch_nothing: bool = False
) -> StreamDescription:
    """Return the tables and options of the change stream, now or at a timestamp.

    Raises:
        SourceNotFound: There is no such stream.
        DialectMismatch: The database has another dialect than the setting states, or an unknown one.
        StreamWatchesNothing: The stream watches no table, although it must.
        RetentionExpired: The source no longer has the schema of that timestamp.
    """
    settings, fetch = client.settings, partial(client.fetch_texts, read_micros=at_micros)
    dialect = _checked_dialect(client)
    catalog, name = INFORMATION_SCHEMAS[dialect], settings.change_stream
    stream = fetch(catalog.stream(name))
    if not stream:
        raise _not_found(settings, sorted(str(stream_name) for (stream_name,) in fetch(STREAM_NAMES)))
    options = client.fetch_options(at_micros)
    watches_all = catalog.is_true(stream[0][0])
    columns, unwatched, generated = _watched_tables(fetch, catalog, name, watches_all=watches_all)
    keyless = tuple(table.name for table in columns if not table.key_columns)
    if len(columns) == len(keyless) and not may_watch_nothing:
        raise _watches_nothing(settings, keyless)
    tables = tuple(
        _with_nanoseconds(table, settings.nanosecond_columns) for table in columns if table.key_columns
    )
    return StreamDescription(
        # Without a timestamp it is the present schema, which is exact for no past moment.
        micros=at_micros or 0,
        is_exact=at_micros is not None,
        dialect=dialect.value,
        value_capture_type=ValueCaptureType(options.get("value_capture_type", "OLD_AND_NEW_VALUES")),
        retention_s=retention_s(options.get("retention_period")),
        options=options,
        tables=tables,
        unwatched=unwatched,
        generated=generated,
        watches_all=watches_all,
        keyless=keyless,
    )


def retention_s(text: str | None) -> int:
    """Return the seconds of a text such as `7d`; Spanner's default for none, or one of another form."""
    match = _DURATION.fullmatch(text) if text else None
    if match is None:
        return DEFAULT_RETENTION_S
    return int(match.group(1)) * _UNIT_S[match.group(2)]


def _checked_dialect(client: SpannerClient) -> Dialect:
    settings, dialect = client.settings, client.fetch_dialect()
    if settings.dialect not in (None, dialect):
        raise DialectMismatch(
            f"{settings.database_path} uses {dialect}, but `dialect` says {settings.dialect}. Remove the "
            "setting, or check `database`",
        )
    return dialect


def _watched_tables(
    fetch: Callable[[Query], list[Texts]], catalog: InformationSchema, stream: str, *, watches_all: bool
) -> tuple[tuple[TableSchema, ...], _NamesByTable, _NamesByTable]:
    """Return the watched tables, the unwatched columns of all tables, and generated columns of watched ones.

    Only tables that have such columns are among the last two.
    """
    query = catalog.all_tables() if watches_all else catalog.tables(stream)
    columns_by_place = {(str(row[0]), str(row[1])): catalog.is_true(row[2]) for row in fetch(query)}
    watched_columns = defaultdict(set)
    for schema, table, column in fetch(catalog.listed_columns(stream)):
        watched_columns[str(schema), str(table)].add(str(column))
    columns, unwatched_columns, generated_columns = defaultdict(list), defaultdict(list), defaultdict(list)
    for row in fetch(catalog.columns()):
        name = (str(row[0]), str(row[1]))
        if name in columns_by_place and _is_watched(
            row, None if columns_by_place[name] else watched_columns[name]
        ):
            columns[name].append(_column(row, catalog))
        elif not _is_generated(row):
            unwatched_columns[catalog.table_name(*name)].append(str(row[2]))
        elif name in columns_by_place:
            generated_columns[catalog.table_name(*name)].append(str(row[2]))
    tables = tuple(_table(catalog.table_name(*name), columns[name]) for name in sorted(columns_by_place))
    return tables, _sorted_names(unwatched_columns), _sorted_names(generated_columns)


def _sorted_names(names: Mapping[str, Iterable[str]]) -> _NamesByTable:
    return {table: tuple(sorted(columns)) for table, columns in names.items()}


def _is_watched(row: Texts, column_names: set[str] | None) -> bool:
    _, _, column, _, _, _, key_ordinal = row
    if key_ordinal is not None:
        return True
    return not _is_generated(row) and (column_names is None or column in column_names)


def _is_generated(row: Texts) -> bool:
    """Return whether a column is a generated one outside the key, which no change stream can watch."""
    return row[4] == "ALWAYS" and row[6] is None


def _column(row: Texts, catalog: InformationSchema) -> Column:
    _, _, name, spanner_type, _, ordinal, key_ordinal = row
    is_googlesql = catalog is INFORMATION_SCHEMAS[Dialect.GOOGLESQL]
    parse = ColumnType.from_spanner_type if is_googlesql else ColumnType.from_postgresql_type
    return Column(
        str(name), parse(str(spanner_type)), key_ordinal is not None, int(str(key_ordinal or ordinal))
    )


def _table(name: str, columns: Iterable[Column]) -> TableSchema:
    in_order = sorted(columns, key=lambda column: (not column.is_primary_key, column.ordinal))
    return TableSchema(name, tuple(in_order))


def _with_nanoseconds(table: TableSchema, names: tuple[str, ...]) -> TableSchema:
    """Return the table, with those timestamps that are named as text of nine digits of a second."""
    columns = (
        replace(column, type=column.type.with_nanoseconds())
        if f"{table.name}.{column.name}" in names
        else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def check_nanosecond_columns(description: StreamDescription, names: tuple[str, ...]) -> None:
    """Check that a setting names timestamps; later one of them may be dropped, which is not a mistake.

    Raises:
        SettingError: It names a column that is not watched, or not a timestamp.
    """
    types = {
        f"{table.name}.{column.name}": column.type for table in description.tables for column in table.columns
    }
    for name in names:
        if name not in types:
            raise SettingError("nanosecond_columns", f"names an unwatched column: {name!r}")
        if not types[name].keeps_nanoseconds:
            raise SettingError("nanosecond_columns", f"names a column that is not a timestamp: {name!r}")


def _not_found(settings: SpannerSettings, stream_names: list[str]) -> SourceNotFound:
    hint = f"There are: {', '.join(stream_names)}" if stream_names else "The database has none; create one"
    return SourceNotFound(
        f"There is no {settings.title}. Correct `change_stream`; if the stream was dropped, its records are "
        f"lost: create it again, and begin a new lake folder. {hint}"
    )


def _watches_nothing(settings: SpannerSettings, keyless: tuple[str, ...]) -> StreamWatchesNothing:
    but = f" except those without a key column: {', '.join(keyless)}" if keyless else ""
    example = f"ALTER CHANGE STREAM {settings.change_stream} SET FOR ALL"
    return StreamWatchesNothing(f"The {settings.title} watches no table{but}. Set what it watches: {example}")
