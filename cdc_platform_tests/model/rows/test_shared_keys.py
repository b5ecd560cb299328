"""Keys that several rows of a transaction have at a time: each ends with the row that has it in the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import process_time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.rows.shared_keys import KeyUse, parted_orders
from cdc_platform.model.stream.records import ModType

KEYS: Final = range(5)
ROWS: Final = "ABC"
Row = dict[str, Any]


@dataclass
class Transaction:
    """A transaction of a database that checks keys at the end of a statement, and its changes."""

    rows: dict[int, Row] = field(
        default_factory=lambda: {key: {"name": ROWS[key], "n": 0} for key in range(3)}
    )
    uses: list[KeyUse] = field(default_factory=list)

    def move(self, *moves: tuple[int, int]) -> None:
        """Give rows other keys, row by row: the half that leaves, and the half that comes."""
        taken = {old: self.rows.pop(old) for old, _ in moves}
        for old, new in moves:
            self._say(ModType.DELETE, old, taken[old], {})
            self._say(ModType.INSERT, new, {}, taken[old])
        self.rows |= {new: taken[old] for old, new in moves}

    def update(self, key: int) -> None:
        """Change a value of a row."""
        row = {**self.rows[key], "n": len(self.uses) + 1}
        self._say(ModType.UPDATE, key, self.rows[key], row)
        self.rows[key] = row

    def delete(self, key: int) -> None:
        """Delete a row."""
        self._say(ModType.DELETE, key, self.rows.pop(key), {})

    def insert(self, key: int) -> None:
        """Insert a row that no other one is equal to."""
        self.rows[key] = {"name": f"new {len(self.uses)}", "n": 0}
        self._say(ModType.INSERT, key, {}, self.rows[key])

    def truncate(self) -> None:
        """Delete all rows."""
        self.rows.clear()
        self._say(ModType.TRUNCATE, None, {}, {})

    def _say(self, mod_type: ModType, key: int | None, before: Row, after: Row) -> None:
        place = len(self.uses)
        follows = self.uses[-1].ordering_key if self.uses else None
        order, keys = f"9 {place:04}", "" if key is None else str(key)
        self.uses.append(KeyUse(str(place), "t", "1", keys, mod_type, order, follows, before, after))


def apply_uses(uses: Iterable[KeyUse], before: Mapping[int, Row]) -> dict[int, Row]:
    """Return the rows where the newest change of each key counts, and an insert is one of a free key."""
    rows = {str(key): dict(row) for key, row in before.items()}
    for use in uses:
        if use.mod_type is ModType.TRUNCATE:
            rows.clear()
        elif use.mod_type is ModType.DELETE:
            del rows[use.keys]
        else:
            assert (use.mod_type is ModType.UPDATE) == (use.keys in rows)
            rows[use.keys] = dict(use.after)
    return {int(key): row for key, row in rows.items()}


def in_order(uses: Sequence[KeyUse]) -> list[KeyUse]:
    """Return changes by their new ordering keys, of which no two are equal."""
    orders = parted_orders(uses)
    placed = sorted(
        (replace(use, ordering_key=orders.get(use.event_id, use.ordering_key)) for use in uses), key=order_of
    )
    assert all(use.ordering_key < other.ordering_key for use, other in pairwise(placed))
    return placed


def order_of(use: KeyUse) -> str:
    """Return the ordering key of a change."""
    return use.ordering_key


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    """Return transactions of statements that permute and shift keys, and change, delete and insert rows."""
    made = Transaction()
    for _ in range(draw(st.integers(1, 8))):
        keys = sorted(made.rows)
        free = [key for key in KEYS if key not in made.rows]
        kind = draw(st.sampled_from(["move"] * 4 + ["update", "delete", "insert"] + ["truncate"]))
        if kind == "move" and keys:
            movers = draw(st.permutations(keys))[: draw(st.integers(1, len(keys)))]
            targets = draw(st.permutations([*movers, *free]))
            made.move(*((old, new) for old, new in zip(movers, targets, strict=False) if old != new))
        elif kind in ("update", "delete") and keys:
            getattr(made, kind)(draw(st.sampled_from(keys)))
        elif kind == "insert" and free:
            made.insert(draw(st.sampled_from(free)))
        elif kind == "truncate":
            made.truncate()
    return made


@given(transactions())
def test_each_key_has_the_row_that_it_ends_with(made: Transaction) -> None:
    """For any exchange of keys, the result is the database's, and no row gets a key that is taken."""
    assert made.rows == apply_uses(in_order(made.uses), Transaction().rows)


def shifted() -> Transaction:
    """Return a transaction that shifts all keys by one, and then changes a row."""
    made = Transaction()
    made.move((0, 1), (1, 2), (2, 3))
    made.update(1)
    return made


def test_what_leaves_comes_before_what_has_taken_its_key() -> None:
    """Nothing else moves, also where the taker is the first change that is known."""
    made = shifted()
    deletes = [use.event_id for use in made.uses if use.mod_type is ModType.DELETE]
    assert set(deletes[1:]) == parted_orders(made.uses).keys()
    first = [replace(use, follows=None) for use in made.uses[1:3]]
    assert [use.event_id for use in in_order(first)] == ["2", "1"]


@pytest.mark.parametrize("mod_type", [ModType.UPDATE, ModType.DELETE])
def test_changes_of_a_row_between_follow_it(mod_type: ModType) -> None:
    """Changes of the former row come before those of another row that takes its key."""
    uses = [
        KeyUse("take", "t", "1", "1", ModType.INSERT, "2", "1", {}, {"name": "A"}),
        KeyUse("change", "t", "1", "1", mod_type, "3", "2", {"name": "B"}, {"name": "B2"}),
        KeyUse("leave", "t", "1", "1", ModType.DELETE, "4", "3", {"name": "B2"}),
    ]
    expected = {"change": "1 0 3", "leave": "1 0 4"} if mod_type is ModType.UPDATE else {"change": "1 0 3"}
    assert expected == parted_orders(uses)


def test_rows_that_nothing_distinguishes_stay_as_they_came() -> None:
    """A row that continues from a key to the next is the one that has come there, as in a chain."""
    made = Transaction({0: {"name": "A"}})
    made.move((0, 1))
    made.move((1, 2))
    made.move((2, 0))
    assert parted_orders(made.uses) == {}
    unknown = [replace(use, before={}) for use in shifted().uses]
    assert parted_orders(unknown) == {}


def test_a_key_that_many_rows_have_takes_linear_time() -> None:
    """A faulty stream that inserts one key again and again, and changes its rows, costs a moment."""
    uses = []
    for number in range(40_000):
        order, kind = f"9 {number:06}", (ModType.INSERT, ModType.UPDATE, ModType.DELETE)[number % 4 % 3]
        before = {} if kind is ModType.INSERT else {"n": -1}
        uses.append(KeyUse(str(number), "t", "x", "1", kind, order, None, before, {"n": number}))
    started_s = process_time()
    parted_orders(uses)
    assert process_time() - started_s < 5
