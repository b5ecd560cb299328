"""Tables that were made between two looks: new ones, and those that were dropped and made anew.

The key tells of the latter: Spanner changes none in place, but for STRING that becomes BYTES and the other
way round.
"""

from collections.abc import Callable, Mapping

from cdc_platform.model.column_versions import ColumnHistory
from cdc_platform.model.evolution import SchemaHistory, is_convertible, same_type
from cdc_platform.model.looks import Look
from cdc_platform.model.table_schema import ColumnType


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
    """Whether a table that comes up was certainly made since the last look, and has been watched since then.

    It may be a renamed one; and a stream that names its tables may have begun to watch one with rows.
    """
    if history.tick == 0 or look is None or not (look.is_exact and look.watches_all):
        return False
    exist = {*look.unwatched, *(schema.name for schema in look.tables)}
    if not all(name in exist for name, known in history.tables.items() if known.is_watched):
        return False
    comes_up = any(schema.name not in history.tables for schema in look.tables)
    if look_back is None or history.position_micros is None or not comes_up:
        return True
    before = look_back(history.position_micros)
    return before.is_exact and before.watches_all
