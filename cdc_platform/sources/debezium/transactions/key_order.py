"""Order of rows in one transaction if one row takes the key of another before that one leaves it.

This occurs in PostgreSQL if a key is DEFERRABLE: the halves of `id = id + 1` come row by row, so the delete
of a key may follow the insert of the row that then has the key.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.rows.shared_keys import KeyUse, Values, parted_orders
from cdc_platform.model.stream.events import ChangeRun, FaultyEvent, SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.rows import RowDecoder, UnpairedInsert
from cdc_platform.sources.debezium.wire.event_faults import fault_of

_ROWS: Final = frozenset({ModType.INSERT, ModType.UPDATE, ModType.DELETE})

KeyOfTable = tuple[str, str, str]


def shares_keys(events: Sequence[SourceEvent | FaultyEvent], runs: Sequence[ChangeRun]) -> bool:
    """Return whether a key is left and taken in one transaction, so that all its events are needed."""
    old_keys = _keys(events, ModType.DELETE).union(*_run_keys(runs, ModType.DELETE))
    if not old_keys:
        return False
    new_keys = (_keys(events, ModType.INSERT), *_run_keys(runs, ModType.INSERT))
    return not all(map(old_keys.isdisjoint, new_keys))


def ordering_keys(
    events: Sequence[SourceEvent | FaultyEvent], befores: Mapping[str, str]
) -> Iterator[tuple[SourceEvent, str]]:
    """Yield events with new ordering keys, so that each key ends with the row that has it last.

    Args:
        events: events, possibly only a part of their transactions.
        befores: JSON of the known values of rows before a change, for events that lack them.
    """
    old_keys = _keys(events, ModType.DELETE)
    shared_keys = old_keys and old_keys & _keys(events, ModType.INSERT)
    if not shared_keys:
        return
    # A repeated event is one event, which neither takes a key from itself nor leaves it twice.
    distinct = {
        event.event_id: event for event in events if isinstance(event, SourceEvent) and event.transaction_id
    }
    orders = parted_orders(_uses(list(distinct.values()), shared_keys, befores))
    yield from ((distinct[identity], order) for identity, order in orders.items())


def _run_keys(runs: Sequence[ChangeRun], kind: ModType) -> Iterator[Iterator[KeyOfTable]]:
    """Yield the keys of each run of changes of a kind."""
    for run in runs:
        if run.mod_type is kind:
            yield zip(run.transaction_ids, repeat(run.table), run.keys)


def _keys(events: Sequence[SourceEvent | FaultyEvent], kind: ModType) -> set[KeyOfTable]:
    """Return the keys of all changes of a kind that belong to a transaction."""
    return {
        _key_of(event)
        for event in events
        if isinstance(event, SourceEvent) and event.mod_type is kind and event.transaction_id
    }


def _key_of(event: SourceEvent) -> KeyOfTable:
    return event.transaction_id, event.table, event.keys


def _uses(
    events: Sequence[SourceEvent], shared_keys: Collection[KeyOfTable], befores: Mapping[str, str]
) -> Iterator[KeyUse]:
    """Yield the uses of keys that are left and taken in one transaction, with the truncates among them."""
    transactions = {transaction for transaction, _, _ in shared_keys}
    transaction_events = [event for event in events if event.transaction_id in transactions]
    orders: defaultdict[str, list[str]] = defaultdict(list)
    for event in sorted(transaction_events, key=lambda event: event.ordering_key):
        orders[event.transaction_id].append(event.ordering_key)
    values = _value_texts(transaction_events, befores)
    for event in transaction_events:
        if event.mod_type is ModType.TRUNCATE or (event.mod_type in _ROWS and _key_of(event) in shared_keys):
            yield _use(event, orders[event.transaction_id], values.get(event.event_id, {}))


def _value_texts(events: Sequence[SourceEvent], befores: Mapping[str, str]) -> Mapping[str, Values]:
    """Return the certain values of the rows before changes, by event.

    If an image may be less than the whole row, a value may be the default of a NOT NULL column. All images
    of a table have the same default, so a column whose values differ has real values.
    """
    values = {event.event_id: _values(befores.get(event.event_id)) for event in events}
    keys: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for event in events:
        for name, value in values[event.event_id].items():
            keys[event.transaction_id, event.table, name].add(repr(value))
    return {
        event.event_id: {
            name: value
            for name, value in values[event.event_id].items()
            if len(keys[event.transaction_id, event.table, name]) > 1
        }
        for event in events
    }


def _use(event: SourceEvent, orders: Sequence[str], values: Values) -> KeyUse:
    place = bisect_left(orders, event.ordering_key)
    after = _values(event.new_values)
    return KeyUse(
        event.event_id,
        event.table,
        event.transaction_id,
        event.keys,
        event.mod_type,
        event.ordering_key,
        orders[place - 1] if place else None,
        _values(event.old_values) or values,
        {name: value for name, value in after.items() if name not in event.unavailable_columns},
    )


def _values(text: str | None) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(text, parse_float=str) if text is not None else {}
    return members


Event = SourceEvent | FaultyEvent


def altered_events(events: Sequence[Event], rows: RowDecoder) -> Mapping[str, Event]:
    """Return the altered events by their identities: inserted rows and shared keys.

    Args:
        events: all events of whole transactions.
        rows: the decoder of the events.
    """
    replacements = dict(_completed_events(rows))
    current = [_replacement(event, replacements) for event in events] if replacements else events
    for event, ordering_key in ordering_keys(current, rows.befores):
        replacements[event.event_id] = event._replace(ordering_key=ordering_key)
    return replacements


def _completed_events(rows: RowDecoder) -> Iterator[tuple[str, Event]]:
    for identity, insert in list(rows.unpaired.items()):
        outcome = _finalise(rows, insert)
        if outcome != insert.change:
            yield identity, outcome


def _finalise(rows: RowDecoder, insert: UnpairedInsert) -> Event:
    try:
        return rows.finalise(insert)
    except MALFORMED as error:
        if insert.event is None:
            # The deletion is unusable and in quarantine, so the row counts as new.
            return insert.change
        event, change = insert.event, insert.change
        return fault_of(event.message, error, event, change.ordering_key, change.table)


def _replacement(event: Event, replacements: Mapping[str, Event]) -> Event:
    return replacements.get(event.event_id, event) if isinstance(event, SourceEvent) else event
