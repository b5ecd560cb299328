"""Detection of tables that were created, renamed or recreated between two schema reads, and of such columns.

The key shows a recreated table: Spanner changes no key in place, except between STRING and BYTES.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory, is_convertible, same_type
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema

ONE_CHANGE_MICROS: Final = 1000
"""The schema of a database does not change twice within so short a time."""


def has_other_key(columns: ColumnHistory, key: Mapping[str, ColumnType]) -> bool:
    """Return whether a key with columns of these types certainly belongs to a recreated table."""
    types = {version.name: version.type for version in columns.live_versions if version.is_primary_key}
    return bool(types and key) and _are_other(types, key)


def _are_other(first: Mapping[str, ColumnType], other: Mapping[str, ColumnType]) -> bool:
    return first.keys() != other.keys() or any(_is_other(first[name], other[name]) for name in other)


def _is_other(first: ColumnType, other: ColumnType) -> bool:
    # The annotation of a type may depend on settings, such as which columns keep nanoseconds.
    return first.code != other.code and not same_type(first, other) and not is_convertible(first, other)


def shows_creation(
    history: SchemaHistory, schema_read: SchemaRead | None, read_back: Callable[[int], SchemaRead] | None
) -> bool:
    """Return whether a new table has certainly been watched since it got its name.

    A stream that watches listed tables may have begun to watch a table with rows.
    """
    if history.cycle == 0 or schema_read is None or not (schema_read.is_exact and schema_read.watches_all):
        return False
    comes_up = any(schema.name not in history.tables for schema in schema_read.tables)
    if read_back is None or history.position_micros is None or not comes_up:
        return True
    before = read_back(history.position_micros)
    return before.is_exact and before.watches_all


def find_populated(
    history: SchemaHistory,
    schema_read: SchemaRead,
    read_back: Callable[[int], SchemaRead],
    has_rows: Callable[[str, int], bool],
) -> frozenset[str]:
    """Return the tables that came up since the last schema read and had rows when they did.

    They had another name, or were not watched at first. A table with another key than the one of its name
    has come up, too. One that the source no longer shows as of that moment may have had rows.

    Args:
        history: the schema history so far.
        schema_read: the source's schema now.
        read_back: reads the source's schema at an earlier moment.
        has_rows: returns whether a table had rows at a moment.
    """
    since_micros = history.position_micros
    if since_micros is None:
        return frozenset()

    def is_populated(table: TableSchema) -> bool:
        before, after = read_back(since_micros), schema_read
        while before.is_exact and after.is_exact and not _has_table(before, table):
            if after.micros - before.micros <= ONE_CHANGE_MICROS:
                return has_rows(table.name, after.micros)
            between = read_back((before.micros + after.micros) // 2)
            before, after = (before, between) if _has_table(between, table) else (between, after)
        return True

    return frozenset(table.name for table in _fresh_tables(history, schema_read) if is_populated(table))


def _fresh_tables(history: SchemaHistory, schema_read: SchemaRead) -> Iterator[TableSchema]:
    """Yield the tables that are new, other ones or came back, without new ones that are copied anyway."""
    for table in schema_read.tables:
        columns = history.tables.get(table.name)
        if columns is None:
            is_fresh = schema_read.watches_all
        else:
            is_fresh = columns.is_dropped or has_other_key(columns, _key_of(table))
        if is_fresh:
            yield table


def _has_table(schema_read: SchemaRead, table: TableSchema) -> bool:
    """Return whether a table of this name and with this key is watched."""
    keys = [_key_of(other) for other in schema_read.tables if other.name == table.name]
    return any(not _are_other(key, _key_of(table)) for key in keys)


def _key_of(table: TableSchema) -> Mapping[str, ColumnType]:
    return {column.name: column.type for column in table.key_columns}


@dataclass(frozen=True)
class RecreatedColumn:
    """A recreated column: its ordinal at the earlier schema read, and the columns that overtook it."""

    before: int
    ahead: frozenset[str]

    def is_new(self, name: str, ordinals: Mapping[str, int]) -> bool:
        """Return whether the ordinals of a record's columns prove that it has the new column."""
        place = ordinals[name]
        return place > self.before or any(ordinals.get(other, place) < place for other in self.ahead)


def recreated_columns_of(columns: ColumnHistory, schema: TableSchema) -> Mapping[str, RecreatedColumn]:
    """Return the columns outside the key that were dropped and added again, unchanged, since the last read.

    Only the ordinals show them: a new column is always the last one, and only dropping a column ahead of it
    moves it. A column that was the last one, and is the last one again, is not found.
    """
    recreated_columns: dict[str, RecreatedColumn] = {}
    seen_names: list[str] = []
    furthest, is_added = 0, False
    for column in sorted(schema.value_columns, key=lambda column: column.ordinal):
        before = columns.places.get(column.name)
        if before is None:
            may_be_old = column.name in columns.unwatched or columns.live(column.name) is not None
            is_added = is_added or not may_be_old
        elif is_added or before < furthest:
            is_added = True
            recreated_columns[column.name] = RecreatedColumn(before, _overtakers(columns, seen_names, before))
        else:
            furthest = before
        seen_names.append(column.name)
    return recreated_columns


def _overtakers(columns: ColumnHistory, seen_names: list[str], before: int) -> frozenset[str]:
    return frozenset(name for name in seen_names if columns.places.get(name, before) >= before)


def find_recreated(
    history: SchemaHistory, schema_read: SchemaRead | None
) -> Mapping[tuple[str, str], RecreatedColumn]:
    """Return the columns that were recreated unchanged since the last schema read, by table and name."""
    if schema_read is None or not schema_read.is_exact:
        return {}
    return {
        (schema.name, name): recreated_column
        for schema in schema_read.tables
        if (columns := history.tables.get(schema.name)) is not None and columns.is_watched
        for name, recreated_column in recreated_columns_of(columns, schema).items()
    }
