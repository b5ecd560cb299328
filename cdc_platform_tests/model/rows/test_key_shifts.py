"""Keys that shift in a transaction: in any distribution over cycles, each key has its final row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_platform.model.rows.key_shifts import KeyEvent, shifted_orders

KEYS: Final = range(5)
ROWS: Final = "ABC"


@dataclass
class Transaction:
    """A transaction of Oracle, which checks keys at the end of a statement, and its events."""

    keys: dict[str, int] = field(default_factory=lambda: dict(zip(ROWS, KEYS, strict=False)))
    events: list[KeyEvent] = field(default_factory=list)

    def run(self, *moves: tuple[str, int | None]) -> None:
        """Run a statement that gives rows new keys, in the order in which it reaches them, or none."""
        for row, key in moves:
            former = self.keys.pop(row, None)
            place = len(self.events)
            # The halves of a row share their place, but for what they do.
            if former is not None:
                self.events.append(event(place, 0, former, row))
            if key is not None:
                self.events.append(event(place, 1, key, row))
                self.keys[row] = key
        assert len(self.keys) == len(set(self.keys.values()))


def event(place: int, half: int, key: int, row: str) -> KeyEvent:
    """Return the event at a place; the first half removes."""
    order = f"{place:04} {half} u{place:02}{half}"
    return KeyEvent(f"{place}-{half}", "T", "t1", str(key), row, order, half == 0)


def outcome(cycles: Iterable[Sequence[KeyEvent]]) -> dict[str, int]:
    """Return the keys of the rows where the newest ordering key of each key counts."""
    logged: list[KeyEvent] = []
    for cycle in cycles:
        moved = shifted_orders([*logged, *cycle])
        assert moved.keys() <= {event.event_id for event in cycle}
        logged += [
            replace(event, logged_order=moved.get(event.event_id, event.ordering_key)) for event in cycle
        ]
    first = {row: (str(key), "", False) for row, key in zip(ROWS, KEYS, strict=False)}
    newest = {key: (order, row, is_removal) for row, (key, order, is_removal) in first.items()}
    for event in logged:
        entry = (event.logged_order or "", event.address, event.is_removal)
        newest[event.keys] = max(entry, newest.get(event.keys, entry))
    living = [(row, int(key)) for key, (_, row, is_removal) in newest.items() if not is_removal]
    assert len(living) == len(dict(living))
    return dict(living)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    """Return transactions of statements that shift, swap, pass on, free and take keys."""
    made = Transaction()
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.permutations(ROWS))[: draw(st.integers(1, len(ROWS)))]
        taken = {key for row, key in made.keys.items() if row not in rows}
        free = draw(st.permutations([key for key in KEYS if key not in taken]))
        moves = [
            (row, key if draw(st.integers(0, 5)) else None) for row, key in zip(rows, free, strict=False)
        ]
        made.run(*(item for item in moves if made.keys.get(item[0]) != item[1]))
    return made


@dataclass(frozen=True)
class Arrivals:
    """A transaction, and the events of it that each cycle brings.

    Args:
        made: the transaction.
        cycles: events, by cycle.
    """

    made: Transaction
    cycles: Sequence[Sequence[KeyEvent]]


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    """Return transactions whose events arrive in any order, in one cycle or several."""
    made = draw(transactions())
    mixed = draw(st.permutations(made.events))
    cuts = sorted(draw(st.sets(st.integers(0, len(mixed)), max_size=4)) | {0, len(mixed)})
    return Arrivals(made, [mixed[begin:end] for begin, end in pairwise(cuts)])


def arriving(statements: Sequence[Sequence[tuple[str, int]]], *cycles: Sequence[str]) -> Arrivals:
    """Return a transaction of statements whose events arrive by these identities, and then the others."""
    made = Transaction()
    for moves in statements:
        made.run(*moves)
    events = {event.event_id: event for event in made.events}
    named = [[events.pop(event_id) for event_id in cycle] for cycle in cycles]
    return Arrivals(made, [*named, list(events.values())])


@example(
    # The first cycle has B come and C go: B seems to stay. C comes before B goes, and arrives after it.
    arriving([[("B", 0), ("A", 1)], [("C", 0), ("B", 2)], [("C", 4)]], ["0-1", "8-0"], ["4-1"], ["6-0"]),
)
@example(
    # A comes twice, and seems to stay each time. Its first removal must follow one writing, not the other.
    arriving([[("B", 4)], [("A", 3)], [("C", 3), ("A", 1)], [("A", 3), ("C", 2)]], ["10-0", "2-1"], ["8-1"]),
)
@given(arrivals())
def test_each_key_has_the_row_that_the_transaction_ends_with(arrived: Arrivals) -> None:
    """The result is the same in one cycle and in several, for any distribution of the events."""
    assert arrived.made.keys == outcome([arrived.made.events])
    assert arrived.made.keys == outcome(arrived.cycles)


@given(made=transactions())
def test_rows_hold_a_key_one_after_the_other(made: Transaction) -> None:
    """In one cycle each row's removal follows its writing, before the next row is written."""
    moved = shifted_orders(made.events)
    holders: dict[str, str] = {str(key): row for row, key in zip(ROWS, KEYS, strict=False)}
    for event in sorted(made.events, key=lambda event: moved.get(event.event_id, event.ordering_key)):
        if event.is_removal:
            assert event.address == holders.pop(event.keys)
        else:
            assert event.address == holders.setdefault(event.keys, event.address)


def two_swaps() -> Transaction:
    """Return a transaction in which two rows pass through one unused key, one after the other."""
    made = Transaction()
    for move in (("A", 4), ("B", 0), ("A", 1), ("C", 4), ("B", 3), ("C", 0)):
        made.run(move)
    return made


@pytest.mark.parametrize("split", range(13))
def test_a_key_that_is_used_twice_for_a_while_is_free(split: int) -> None:
    """A row that left a key is not written there behind the removal of another one."""
    made = two_swaps()
    assert made.keys == {"A": 1, "B": 3, "C": 0}
    assert made.keys == outcome([made.events])
    assert made.keys == outcome([made.events[:split], made.events[split:]])
    assert made.keys == outcome([made.events[split:], made.events[:split]])


def test_events_of_one_row_keep_their_order() -> None:
    """A row that goes there and back needs no other order than the source's."""
    made = Transaction()
    for key in (4, 0, 4):
        made.run(("A", key))
    assert shifted_orders(made.events) == {}
