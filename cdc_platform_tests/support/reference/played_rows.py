"""Rows of a database that is played in memory: the messages of their changes, and their state at the end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from cdc_platform.model.rows.resolution import RowChange, Values
from cdc_platform.model.stream.records import ModType

TABLE: Final = "public.t"


TEMPORARY: Final = 9


LARGE: Final = ("LARGE one", "LARGE two", "LARGE three")


def key(number: int) -> str:
    """Return a key as the log has it."""
    return json.dumps({"id": number})


def change(mod_type: ModType, number: int, values: Values | None = None, **rest: Any) -> RowChange:
    """Return a change of a row of the table."""
    return RowChange(TABLE, key(number), mod_type, values, **rest)


@dataclass
class Database:
    """A table that writes down what a source says of it, and what is true after each change."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    changes: list[RowChange] = field(default_factory=list)
    truths: list[Values | None] = field(default_factory=list)

    def say(self, made: RowChange, truth: Values | None) -> None:
        """Write down a change, and the row after it."""
        self.changes.append(made)
        self.truths.append(None if truth is None else dict(truth))

    def insert(self, number: int, value: Any) -> None:
        """Insert a row, which ships all its values; a row that is there is read by a snapshot instead."""
        kind = ModType.SNAPSHOT if number in self.rows else ModType.INSERT
        row = self.rows.setdefault(number, {"a": 0, "big": value})
        self.say(change(kind, number, dict(row)), row)

    def update(self, number: int, value: Any) -> None:
        """Update the small column, and the large one unless the value is an ellipsis."""
        row = self.rows.get(number)
        if row is None:
            return
        row["a"] += 1
        if value is not ...:
            row["big"] = value
            self.say(change(ModType.UPDATE, number, dict(row)), row)
            return
        sent_values, omitted_names = self.ship(row)
        self.say(change(ModType.UPDATE, number, sent_values, unavailable=omitted_names), row)

    def ship(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return what the source sends of a row whose large column did not change, and what it does not."""
        if row["big"] in LARGE:
            return {"a": row["a"]}, ("big",)
        return dict(row), ()

    def delete(self, number: int) -> None:
        """Delete a row."""
        if self.rows.pop(number, None) is not None:
            self.say(change(ModType.DELETE, number), None)

    def move(self, old: int, new: int) -> None:
        """Give a row another key, which is free."""
        if old not in self.rows or new in self.rows:
            return
        row = self.rows[new] = self.rows.pop(old)
        sent_values, omitted_names = self.ship(row)
        self.say(change(ModType.DELETE, old), None)
        self.say(
            change(ModType.INSERT, new, sent_values, unavailable=omitted_names, previous_key=key(old)),
            row,
        )

    def swap(self, item: int, other: int) -> None:
        """Swap the keys of two rows."""
        if item != other and {item, other} <= self.rows.keys():
            self.move(item, TEMPORARY)
            self.move(other, item)
            self.move(TEMPORARY, other)

    def truncate(self, _number: int) -> None:
        """Delete all rows."""
        self.rows.clear()
        self.say(RowChange(TABLE, "{}", ModType.TRUNCATE), None)


NUMBERS: Final = st.integers(1, 4)


VALUES: Final = st.sampled_from([*LARGE, "short", None])


STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), NUMBERS, VALUES),
        st.tuples(st.just("update"), NUMBERS, st.just(...)),
        st.tuples(st.just("update"), NUMBERS, VALUES),
        st.tuples(st.just("delete"), NUMBERS),
        st.tuples(st.just("move"), NUMBERS, NUMBERS),
        st.tuples(st.just("swap"), NUMBERS, NUMBERS),
        st.tuples(st.just("truncate"), NUMBERS),
    ),
    max_size=40,
)


def play(steps: Sequence[tuple[Any, ...]], rows: Mapping[int, Values]) -> Database:
    """Return the database after some steps."""
    database = Database({number: dict(row) for number, row in rows.items()})
    for name, *arguments in steps:
        getattr(database, name)(*arguments)
    return database


SIZES: Final = st.lists(st.integers(1, 9), min_size=1, max_size=5)
