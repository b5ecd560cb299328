"""Detection of tables that were created, renamed or recreated between two schema reads.

The key shows a recreated table: Spanner changes no key in place, except between STRING and BYTES.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory, is_convertible, same_type
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import ColumnType

ONE_CHANGE_MICROS: Final = 1000
"""The schema of a database does not change twice within so short a time."""


def has_other_key(columns: ColumnHistory, key: Mapping[str, ColumnType]) -> bool:
    """Return whether a key with columns of these types certainly belongs to a recreated table."""
    types = {version.name: version.type for version in columns.live_versions if version.is_primary_key}
    if not (types and key):
        return False
    return types.keys() != key.keys() or any(_is_other(types[name], key[name]) for name in key)


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


def find_renamed(
    history: SchemaHistory, schema_read: SchemaRead | None, read_back: Callable[[int], SchemaRead] | None
) -> frozenset[str]:
    """Return the tables that are new since the last schema read, and may have had rows under another name.

    A rename removes the other name at the same moment.
    """
    if schema_read is None or not _lacks_known(history, schema_read):
        return frozenset()
    fresh = frozenset(schema.name for schema in schema_read.tables if schema.name not in history.tables)
    if read_back is None or history.position_micros is None:
        return fresh
    return frozenset(
        name for name in fresh if not _is_made(name, history.position_micros, schema_read, read_back)
    )


def _lacks_known(history: SchemaHistory, schema_read: SchemaRead) -> bool:
    exist = _names(schema_read)
    return any(columns.is_watched and name not in exist for name, columns in history.tables.items())


def _is_made(
    name: str, since_micros: int, schema_read: SchemaRead, read_back: Callable[[int], SchemaRead]
) -> bool:
    """Return whether the table appeared at a moment at which no other table vanished; bisects the time."""
    before, after = read_back(since_micros), schema_read
    while before.is_exact and after.is_exact and name not in _names(before):
        if _names(before) <= _names(after):
            return True
        if after.micros - before.micros <= ONE_CHANGE_MICROS:
            return False
        between = read_back((before.micros + after.micros) // 2)
        before, after = (before, between) if name in _names(between) else (between, after)
    return False


def _names(schema_read: SchemaRead) -> frozenset[str]:
    return frozenset(
        {*schema_read.unwatched, *schema_read.keyless, *(schema.name for schema in schema_read.tables)}
    )
