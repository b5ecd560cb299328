"""A day of Debezium's messages: restarts with redelivery, snapshots under way, key changes, new columns."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.debezium.settings.connector import SnapshotPolicy, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform_tests.support.days.day import with_short_minutes
from cdc_platform_tests.support.debezium.workload import (
    ENTRIES,
    ITEMS,
    LINES,
    SIGNALS,
    Files,
    Key,
    Outlet,
    Sessions,
)
from cdc_platform_tests.support.workloads.workload import Place, describe_difference, stored_rows

PARTS: Final = 3
"""So many cycles pass from the beginning of a snapshot to its end."""
MAX_NOTES: Final = 50
"""Columns that come and go in a day, at most."""
REDELIVERED: Final = 600
"""A connector that starts again repeats at most so many messages."""


@dataclass(frozen=True)
class Habits:
    """How often a connector does more than follow the log.

    Args:
        stopped: share of cycles in which it stops.
        snapshot: share of cycles in which it has lost its place, and takes a snapshot, as in the first one.
        begun_again: share of the parts of a snapshot in which it stops, and begins again with another one.
        incremental: share of cycles in which it is asked for an incremental snapshot.
        unseen: changes without a capture before a snapshot.
        chunk: rows of an incremental snapshot that come in one cycle.
        policy: what a snapshot does to rows that it lacks.
    """

    stopped: float = 0.05
    snapshot: float = 0.01
    begun_again: float = 0.3
    incremental: float = 0.02
    unseen: int = 20
    chunk: int = 20
    policy: SnapshotPolicy = SnapshotPolicy.REPLACE


class SessionsDay(Sessions):
    """Transactions whose connector stops, and now and then reads the tables as they are.

    Args:
        place: where the workload runs; about ``place.changes`` messages arrive with each cycle.
        schema_change_every: cycles from one change of the columns to the next.
        habits: of the connector.
        outlet: where it writes to; files unless there is another one.
    """

    def __init__(
        self,
        place: Place,
        schema_change_every: int,
        habits: Habits | None = None,
        outlet: Outlet | None = None,
    ) -> None:
        super().__init__(place, Strategy.OMIT, outlet or Files(place.folder))
        self._habits = habits or Habits()
        source = self.settings.source
        assert isinstance(source, DebeziumSettings)
        # Messages without a schema say nothing of types.
        notes = {f"note_{number}": "text" for number in range(MAX_NOTES)}
        columns = {**source.columns, ITEMS: {**source.columns[ITEMS], **notes}}
        own = replace(source, snapshots=self._habits.policy, columns=columns, signal_table=SIGNALS)
        self.settings = with_short_minutes(replace(self.settings, source=own))
        self.incidents: Counter[str] = Counter()
        self._every = schema_change_every
        self._notes: dict[Key, dict[str, str | None]] = {}
        self._written: list[str] = []
        self._unwritten: list[str] = []
        """Messages that a connector has not written which has stopped."""
        self._snapshot: list[str] = []
        """Messages of a snapshot under way."""
        self._part = 0
        """So many of them come in one cycle."""
        self._chunks: list[Key] = []
        """Items that an incremental snapshot has still to read."""

    def send(self) -> None:
        """Write the messages of a minute."""
        self._cycle += 1
        if self._cycle % self._every == 0:
            self.incidents["schema changes"] += 1
        if self._snapshot:
            self._go_on_with_snapshot()
        elif self._cycle == 1 or self._happens(self._habits.snapshot):
            self.finish()
            self._transact_unseen()
            self._take_snapshot("snapshots")
            self._go_on_with_snapshot()
        else:
            self._transact()
            self._read_chunk()
            self._deliver(self._sent.take(), stops=self._happens(self._habits.stopped))

    def finish(self) -> None:
        """Write what a connector that has stopped has not written, and the rest of a snapshot."""
        if self._unwritten:
            self._deliver([], stops=False)
        if self._snapshot:
            self._put(self._snapshot)
            self._snapshot = []

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare all tables with the rows that transactions have left, with notes while there are any."""
        differences = super().differences(pipeline)
        if self._note is None:
            return differences
        rows = self._items.items()
        expected = Counter((*key, *row, self._notes[key].get(self._note)) for key, row in rows)
        stored = stored_rows(pipeline, ITEMS, ("id", "n", "big", self._note))
        return [*differences, *describe_difference(f"{ITEMS} with {self._note}", expected, stored)]

    @property
    def _note(self) -> str | None:
        """Column for notes that there is now: one comes, and goes again."""
        lap, is_there = divmod(self._cycle // self._every, 2)
        return f"note_{lap}" if is_there else None

    def _happens(self, share: float) -> bool:
        return self._dice.random() < share

    def _new_row(self, key: Key, number: int, big: str | None) -> dict[str, Any]:
        self._notes[key] = {} if self._note is None else {self._note: f"note on {number}"}
        return super()._new_row(key, number, big) | self._notes[key]

    def _transact_unseen(self) -> None:
        """Let changes happen without a capture."""
        for _ in range(self._habits.unseen):
            self._dice.choice((self._item, self._move, self._line, self._entry))()
        self._sent.take()

    def _take_snapshot(self, kind: str) -> None:
        self.incidents[kind] += 1
        self._sent.snapshot([*self._present_rows()])
        self._chunks = []
        # A connector that has read a snapshot repeats nothing from before it.
        self._snapshot, self._written = self._sent.take(), []
        self._part = len(self._snapshot) // PARTS + 1

    def _go_on_with_snapshot(self) -> None:
        """Write the next part of a snapshot, or begin again with another one."""
        part = self._snapshot[: self._part]
        self._put(part)
        self._snapshot = self._snapshot[len(part) :]
        if self._snapshot and self._happens(self._habits.begun_again):
            self._transact_unseen()
            self._take_snapshot("snapshots begun again")

    def _present_rows(self) -> Iterator[tuple[str, Mapping[str, int] | None, Mapping[str, Any]]]:
        """Yield the rows of all tables as a snapshot finds them."""
        for key, (number, big) in self._items.items():
            yield ITEMS, {"id": key[0]}, self._present_row(key, number, big)
        for (item, line), big in self._lines.items():
            yield LINES, {"item": item, "line": line}, {"item": item, "line": line, "big": big}
        for number, note in self._entries:
            yield ENTRIES, None, {"n": number, "note": note}

    def _present_row(self, key: Key, number: int, big: str | None) -> dict[str, Any]:
        """Return a row of an item as the table has it: with the column for notes that there is now."""
        notes = self._notes.get(key, {})
        self._notes[key] = {} if self._note is None else {self._note: notes.get(self._note)}
        return {"id": key[0], "n": number, "big": big, **self._notes[key]}

    def _read_chunk(self) -> None:
        """Let an incremental snapshot begin, or continue."""
        if not self._chunks and self._happens(self._habits.incremental):
            self.incidents["incremental snapshots"] += 1
            self._chunks = [*self._items]
        size = self._habits.chunk
        chunk, self._chunks = self._chunks[:size], self._chunks[size:]
        if chunk:
            living = [key for key in chunk if key in self._items]
            rows = [({"id": key[0]}, self._present_row(key, *self._items[key])) for key in living]
            self._sent.read_window(ITEMS, rows)

    def _deliver(self, fresh: list[str], *, stops: bool) -> None:
        """Write messages; a connector that had stopped repeats some, and one that stops keeps some back."""
        lines = [*self._unwritten, *fresh]
        repeated_lines = self._written[-self._dice.randint(1, REDELIVERED) :] if self._unwritten else []
        self.incidents["messages redelivered"] += len(repeated_lines)
        whole = self._dice.randrange(len(lines)) if stops else len(lines)
        self.incidents["connectors stopped"] += stops
        self._put([*repeated_lines, *lines[:whole]])
        self._written = [*self._written, *lines[:whole]][-REDELIVERED:]
        self._unwritten = lines[whole:]

    def _put(self, lines: list[str]) -> None:
        self._outlet.write(lines, self._cycle)
