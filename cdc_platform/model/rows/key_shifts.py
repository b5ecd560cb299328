"""Transactions that shift keys: a delete removes the row at its address, not the new row of its key.

Oracle checks keys at the end of a statement, so `id = id + 1` may write the new row of a key before it
removes the old one. By the order of the log alone the key would be gone. Both events belong to one
transaction, and their addresses differ: the write must come last, whichever is read first.

A row holds a key from its write to the removal at its own address, or to the end of the transaction. Among
successive rows of a key, only the next row can be written before the previous one is removed, since one
statement cannot both write and remove a row.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

AFTER: Final = " ~"
"""Suffix of an ordering key that follows the original and precedes every key after that."""


@dataclass(frozen=True)
class KeyEvent:
    """Effect of an event on a key: it removes the key's row, or writes it.

    Args:
        event_id: id of the event.
        table: its table.
        transaction_id: its transaction.
        keys: JSON of the key.
        address: physical address of the row.
        ordering_key: its place in the source's order.
        is_removal: whether it removes the row.
        logged_order: its ordering key in the log; None if it enters the log now.
    """

    event_id: str
    table: str
    transaction_id: str
    keys: str
    address: str
    ordering_key: str
    is_removal: bool
    logged_order: str | None = None


def shifted_orders(events: Iterable[KeyEvent]) -> Mapping[str, str]:
    """Return new ordering keys, by event, for events whose own keys would leave a key to the wrong row.

    Args:
        events: events that enter the log now, and logged events of the same transactions, whose ordering keys
            are fixed.
    """
    of_keys: defaultdict[tuple[str, str, str], list[KeyEvent]] = defaultdict(list)
    for event in events:
        of_keys[event.table, event.transaction_id, event.keys].append(event)
    orders: dict[str, str] = {}
    for of_key in of_keys.values():
        if len({event.address for event in of_key}) > 1:
            orders |= _Key(of_key).new_orders()
    return orders


class _Key:
    """The events of one key in one transaction, which are placed one by one."""

    def __init__(self, events: Iterable[KeyEvent]) -> None:
        self._events = sorted(events, key=lambda event: event.ordering_key)
        self._writes = [event for event in self._events if not event.is_removal]
        self._removals = [event for event in self._events if event.is_removal]
        self._places = {
            event.event_id: event.logged_order for event in self._events if event.logged_order is not None
        }

    def new_orders(self) -> Mapping[str, str]:
        # If both events enter the log now, the write moves.
        for event in (*self._removals, *self._writes):
            if event.logged_order is None:
                self._places[event.event_id] = self._place(event)
        return {
            event.event_id: self._places[event.event_id]
            for event in self._events
            if event.logged_order is None and self._places[event.event_id] != event.ordering_key
        }

    def _place(self, event: KeyEvent) -> str:
        """Return the ordering key of an event, moved only as far as the others require.

        Earlier cycles may have logged a write out of order, behind a write that its removal must precede. The
        removal then follows its own write; otherwise the key would keep a row that has left it.
        """
        order = event.ordering_key
        after, before = self._orders(self._predecessors(event)), self._orders(self._successors(event))
        if event.is_removal and after:
            before = [order for order in before if order > max(after)]
        if after and order <= max(after):
            order = f"{max(after)}{AFTER}"
        # A text without its last character sorts right before the text.
        return min(before)[:-1] if before and order >= min(before) else order

    def _orders(self, events: Iterable[KeyEvent]) -> Sequence[str]:
        return [self._places[event.event_id] for event in events if event.event_id in self._places]

    def _predecessors(self, event: KeyEvent) -> list[KeyEvent]:
        if event.is_removal:
            own = [
                earlier
                for earlier in self._writes
                if _is_own(earlier, event) and earlier.ordering_key < event.ordering_key
            ]
            return own[-1:]
        if event is self._last():
            return [earlier for earlier in self._events if earlier is not event]
        return [earlier for earlier in self._removals if self._makes_room(earlier, event)]

    def _successors(self, event: KeyEvent) -> list[KeyEvent]:
        last = self._last()
        if event is last:
            return []
        events = [last] if last is not None else []
        if event.is_removal:
            return [*events, *(later for later in self._writes if self._makes_room(event, later))]
        return [*events, *self._own_removal(event)]

    def _last(self) -> KeyEvent | None:
        """Return the last known write of the transaction; None if it leaves the key free."""
        newest = self._writes[-1] if self._writes else None
        return newest if newest is not None and not self._own_removal(newest) else None

    def _own_removal(self, write: KeyEvent) -> list[KeyEvent]:
        own = [
            removal
            for removal in self._removals
            if _is_own(removal, write) and removal.ordering_key > write.ordering_key
        ]
        return own[:1]

    def _makes_room(self, removal: KeyEvent, write: KeyEvent) -> bool:
        """Return whether a removal belongs to the key's previous row although it follows the write."""
        later = [event for event in self._writes if event.ordering_key > write.ordering_key][:1]
        ends = [event.ordering_key for event in (*later, *self._own_removal(write))]
        is_later = write.ordering_key < removal.ordering_key
        return is_later and not _is_own(removal, write) and all(removal.ordering_key < end for end in ends)


def _is_own(event: KeyEvent, other: KeyEvent) -> bool:
    return event.address == other.address
