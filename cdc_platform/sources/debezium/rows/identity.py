"""Replica identities: their effect on the image before a change, and the one that cannot be used."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.wire.message_contents import (
    DELETE,
    TRUNCATE,
    UPDATE,
    DataEvent,
    MessageUnusable,
)
from cdc_platform.sources.debezium.wire.positions import is_snapshot

ADVICE: Final = (
    "The table's replica identity is an index other than its primary key: deletes and key changes have the "
    "invented key 0, which identifies no row. Run ALTER TABLE ... REPLICA IDENTITY FULL (or "
    "DEFAULT), let the connector take a new snapshot of the table, and start the table over"
)
_MISSING: Final = object()
_WITHOUT_ORDER: Final = frozenset({"xml", "point", "line", "lseg", "path", "polygon"})

Columns = Mapping[str, ColumnPlan]


def has_more_than_key(event: DataEvent, columns: Columns) -> bool:
    """Return whether the image before has values besides the key, which identities FULL and INDEX add."""
    return any(name not in (event.key or {}) for name in _names_with_content(event, columns))


def _names_with_content(event: DataEvent, columns: Columns) -> list[str]:
    if event.before is None or event.is_flat:
        return []
    return _with_content(event.before, columns)


def _with_content(before: Mapping[str, Any], columns: Columns) -> list[str]:
    return [name for name, value in before.items() if _has_content(columns, name, value)]


def _has_content(columns: Columns, name: str, value: Any) -> bool:
    return name in columns and columns[name].has_content(value)


def check_key(keys: dict[str, list[str]], event: DataEvent, table: str) -> None:
    """Note the key columns that an event shows for its table in the lake.

    ``keys`` has the key columns of each table.

    Raises:
        MessageUnusable: the key has changed.
    """
    if event.op is TRUNCATE:
        return
    key = sorted(event.key or ())
    before = keys.get(table)
    if before is None:
        before = keys[table] = key
    if key != before:
        raise MessageUnusable(
            f"The key of `{table}` is ({_text_of(key)}) now, and was ({_text_of(before)}): one table cannot "
            "have rows of both keys. Let the connector take a new snapshot of it, and read it in a new "
            "pipeline."
        )


def check_key_types(key_types: dict[str, dict[str, str]], types: Mapping[str, str], table: str) -> None:
    """Note the types of a table's key columns.

    Args:
        key_types: types in the lake of the key columns of each table of the lake.
        types: types of an event.
        table: the event's table in the lake.

    Raises:
        MessageUnusable: the type of a key column has changed.
    """
    before = key_types.get(table)
    if before is None:
        before = key_types[table] = dict(types)
    if before == types:
        return
    name = next((name for name in types if types[name] != before.get(name, types[name])), None)
    if name is not None:
        raise MessageUnusable(
            f"The key's column `{name}` of `{table}` is {types[name]} now, and was {before[name]}: the rows "
            "that are there would lose their keys. Let the connector take a new snapshot of the table, and "
            "read it in a new pipeline; a type that holds the values of both, declared there in `columns`, "
            "outlives such a change."
        )


def _text_of(key: Sequence[str]) -> str:
    return ", ".join(key) or "none"


def shows_full(event: DataEvent, columns: Columns) -> bool:
    """Return whether an event proves identity FULL: an update with the whole row before it.

    An index over the key and more columns also sends a row before, with null or zeros in all other columns.
    Every delete has a row before; a value in a nullable column cannot come from an index.
    """
    if event.before is None or event.is_flat:
        return False
    if event.op is DELETE:
        return any(columns[name].is_nullable for name in _names_with_content(event, columns))
    if event.op is not UPDATE:
        return False
    return not event.key or _has_whole_before(event.key, event.before, event.after or {}, columns)


def _has_whole_before(
    key: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], columns: Columns
) -> bool:
    if any(name not in before for name in key):
        return False
    names = _with_content(before, columns)
    is_whole = set(names).issuperset(name for name in before if name in columns)
    return is_whole or any(_is_in_no_index(columns[name], after) for name in names if name not in key)


def shows_index(event: DataEvent, columns: Columns) -> bool:
    """Return whether an event indicates an index over the key and more: one of its columns changed.

    All other columns then seem empty before the update, and one of them has a value after it.
    """
    if event.op is not UPDATE or event.before is None or event.is_flat or not event.key:
        return False
    return update_shows_index(event.key, event.before, event.after or {}, columns)


def update_shows_index(
    key: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], columns: Columns
) -> bool:
    """Return the same of the images of an update of a row with a key."""
    if _has_whole_before(key, before, after, columns):
        return False
    names = _with_content(before, columns)
    is_changed = any(name in after and after[name] != before[name] for name in names)
    rest = (name for name in before if name not in names)
    return is_changed and any(_has_content(columns, name, after.get(name)) for name in rest)


def delete_shows_known(
    key: Mapping[str, Any], before: Mapping[str, Any], columns: Columns, *, is_full: bool
) -> bool:
    """Return whether a delete of a row with a key shows the known identity of its table, FULL or DEFAULT."""
    names = _with_content(before, columns)
    if is_full:
        return any(name not in key for name in names)
    has_key_alone = all(name in key and not columns[name].is_nullable for name in names)
    return has_key_alone and all(_has_content(columns, name, value) for name, value in key.items())


def _is_in_no_index(column: ColumnPlan, after: Mapping[str, Any]) -> bool:
    """Return whether a column cannot be in a replica identity's index, which needs NOT NULL and an order."""
    is_null = after.get(column.name, _MISSING) is None
    return is_null or column.is_nullable or column.encoding.source in _WITHOUT_ORDER


def names_key_alone(event: DataEvent, columns: Columns) -> bool:
    """Return whether a delete has only the key of its row, as with identity DEFAULT."""
    is_delete = event.op is DELETE and event.before is not None and not event.is_flat
    return is_delete and not has_more_than_key(event, columns)


def shows_key(event: DataEvent, columns: Columns) -> bool:
    """Return whether a delete has a real key instead of an invented one."""
    key = event.key or {}
    has_key = event.op is DELETE and bool(key) and not event.is_flat
    return has_key and all(_has_content(columns, name, value) for name, value in key.items())


def shows_unusable(event: DataEvent, columns: Columns) -> bool:
    """Return whether an event proves an index as identity: its image before has values, but no key."""
    if event.op is not DELETE or not event.key:
        return False
    has_key = any(_has_content(columns, name, value) for name, value in event.key.items())
    return not has_key and has_more_than_key(event, columns)


def learn_identity(state: DecoderState, event: DataEvent, plan: Callable[[], TablePlan]) -> bool | None:
    """Update the decoder's state with the replica identity that an event shows for its table.

    Return whether that is FULL; None if the event shows none.

    Args:
        state: what is known of all tables.
        event: the event.
        plan: returns the plan of its table, which few events need.
    """
    name, is_row = event.source.name, is_snapshot(event.source)
    was_full, was_unusable = name in state.full, name in state.unusable
    is_full = None if is_row else _shown_full(event, plan)
    if is_full is None:
        _note_use(state, event)
    else:
        (state.full.add if is_full else state.full.discard)(name)
    if is_row:  # the user followed the advice; if not, the next deletion shows it
        state.unusable.discard(name)
    elif event.before is not None and not was_full:
        _learn_unusable(state, event, plan().columns)
    if was_unusable is not (name in state.unusable):
        state.use.changed_unusable.add(name)
    return is_full


def _shown_full(event: DataEvent, plan: Callable[[], TablePlan]) -> bool | None:
    """Return whether an event shows FULL; None if it shows nothing.

    An update that looks as under an index may be one under FULL of a row with zeros. It ends FULL only where
    other events then have another meaning, or where it names another key before: an index without the key.
    """
    if event.before is None:
        return False if event.op is UPDATE and event.key else None
    if shows_full(event, plan().columns):
        return True
    is_other = shows_index(event, plan().columns) and (plan().doubts_null or _has_other_key(event))
    return False if is_other else None


def _note_use(state: DecoderState, event: DataEvent) -> None:
    """Note an event that may depend on what earlier ones have shown."""
    name, is_change = event.source.name, event.op in (UPDATE, DELETE)
    if name in state.unusable or (event.key and (is_change or event.before is not None)):
        state.use.depend(name)


def _has_other_key(event: DataEvent) -> bool:
    """Return whether the row before an update lacks the key of the event, which FULL always sends."""
    before = event.before or {}
    return any(name not in before or before[name] != value for name, value in (event.key or {}).items())


def _learn_unusable(state: DecoderState, event: DataEvent, columns: Columns) -> None:
    name = event.source.name
    if name in state.full or shows_key(event, columns):
        state.unusable.discard(name)
    elif shows_unusable(event, columns):
        state.unusable.add(name)
        state.use.depend(name, is_doubtful=True)
