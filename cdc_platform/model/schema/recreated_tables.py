"""Tables that were made between two looks: new ones, and those that were dropped and recreated.

The key tells of the latter: Spanner changes none in place, but for STRING that becomes BYTES and the other
way round.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory, is_convertible, same_type
from cdc_platform.model.schema.schema_reads import Look
from cdc_platform.model.schema.table_schema import ColumnType

ONE_CHANGE_MICROS: Final = 1000
"""Within so short a time the schema of a database does not change twice."""


def has_other_key(known: ColumnHistory, key: Mapping[str, ColumnType]) -> bool:
    """Whether a key with columns of these types is certainly that of another table of the same name."""
    types = {version.name: version.type for version in known.live_versions if version.is_primary_key}
    if not (types and key):
        return False
    return types.keys() != key.keys() or any(_is_other(types[name], key[name]) for name in key)


def _is_other(one: ColumnType, other: ColumnType) -> bool:
    # How a type is annotated may be a matter of settings, such as which columns keep nanoseconds.
    return one.code != other.code and not same_type(one, other) and not is_convertible(one, other)


def tells_births(history: SchemaHistory, look: Look | None, look_back: Callable[[int], Look] | None) -> bool:
    """Whether a table that comes up has certainly been watched since it has its name.

    A stream that names its tables may have begun to watch one with rows.
    """
    if history.cycle == 0 or look is None or not (look.is_exact and look.watches_all):
        return False
    comes_up = any(schema.name not in history.tables for schema in look.tables)
    if look_back is None or history.position_micros is None or not comes_up:
        return True
    before = look_back(history.position_micros)
    return before.is_exact and before.watches_all


def find_renamed(
    history: SchemaHistory, look: Look | None, look_back: Callable[[int], Look] | None
) -> frozenset[str]:
    """Return the tables that come up since the last look, and may have had rows under another name.

    A rename takes the other name away at the same moment.
    """
    if look is None or not _lacks_known(history, look):
        return frozenset()
    fresh = frozenset(schema.name for schema in look.tables if schema.name not in history.tables)
    if look_back is None or history.position_micros is None:
        return fresh
    return frozenset(name for name in fresh if not _is_made(name, history.position_micros, look, look_back))


def _lacks_known(history: SchemaHistory, look: Look) -> bool:
    exist = _names(look)
    return any(known.is_watched and name not in exist for name, known in history.tables.items())


def _is_made(name: str, since_micros: int, look: Look, look_back: Callable[[int], Look]) -> bool:
    """Whether there are two moments between which the table comes up and no other one goes, by bisection."""
    before, after = look_back(since_micros), look
    while before.is_exact and after.is_exact and name not in _names(before):
        if _names(before) <= _names(after):
            return True
        if after.micros - before.micros <= ONE_CHANGE_MICROS:
            return False
        between = look_back((before.micros + after.micros) // 2)
        before, after = (before, between) if name in _names(between) else (between, after)
    return False


def _names(look: Look) -> frozenset[str]:
    return frozenset({*look.unwatched, *look.keyless, *(schema.name for schema in look.tables)})
