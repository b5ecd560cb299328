"""A day of Datastream's files: late, repeated, rewritten and torn ones, columns that come, go and change."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.days.day import with_short_minutes
from cdc_platform_tests.support.workloads.workload import Place, describe_difference, stored_rows

KEYS: Final = 300
LATE, REPEATED, MOVED, DELETED = 0.05, 0.05, 0.1, 0.2
LATEST_CYCLES: Final = 30
"""An event is late by at most so many cycles."""
REWRITTEN, TORN = 0.1, 0.02
"""Shares of cycles that rewrite an older file, and of files of which half is there at first."""
RECENT_FILES: Final = 20
TABLES: Final = ("users", "orders")
LATER_TABLE: Final = "refunds"
"""Its first events come with the first change of the schema."""
SIZE: Final = "size"
"""Column of numbers that becomes one of texts with the second change of the schema."""


@dataclass(frozen=True)
class WrittenFile:
    """A file of a table, with its events."""

    name: str
    events: tuple[MadeEvent, ...]


class FilesDay:
    """Inserts, updates, deletes and key changes of MySQL's tables, whose columns change now and then.

    Args:
        place: where the workload runs; ``place.changes`` arrive with each cycle.
        schema_change_every: cycles from one change of the columns to the next.
    """

    def __init__(self, place: Place, schema_change_every: int) -> None:
        source = DatastreamSettings(str(place.folder), table_name="{table}")
        self.settings = with_short_minutes(place.settings(source, TABLES[0]))
        self.incidents: Counter[str] = Counter()
        self._changes, self._every = place.changes, schema_change_every
        self._dice = random.Random(place.seed)  # noqa: S311  an input of tests, not a secret
        self._folder = StreamFolder(place.folder)
        self._cycle = self._number = 0
        self._rows: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in (*TABLES, LATER_TABLE)}
        self._late: list[tuple[int, MadeEvent]] = []
        self._torn: list[WrittenFile] = []
        self._recent: list[WrittenFile] = []
        self._newest: dict[tuple[str, int], MadeEvent] = {}
        self._columns: dict[str, set[str]] = {}

    def send(self) -> None:
        """Write the files of a minute."""
        self._cycle += 1
        if self._cycle % self._every == 0:
            self.incidents["schema changes"] += 1
        self.finish()
        fresh = list[MadeEvent]()
        while len(fresh) < self._changes:
            fresh += self._change()
        sent = self._keep_back(fresh)
        repeated_events = [event for event in sent if self._dice.random() < REPEATED]
        self.incidents["events repeated"] += len(repeated_events)
        self._write([*sent, *repeated_events])
        if self._recent and self._dice.random() < REWRITTEN:
            self._rewrite(self._dice.choice(self._recent))

    def finish(self) -> None:
        """Write files whole of which half is there; what is late stays late."""
        torn, self._torn = self._torn, []
        for file in torn:
            self._put(file)

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare all tables with the rows that the newest of the changes in whole files leave."""
        return [
            text
            for table, columns in self._columns.items()
            for text in self._compare(pipeline, table, ["id", *sorted(columns - {"id"})])
        ]

    def _compare(self, pipeline: Pipeline, table: str, columns: Sequence[str]) -> list[str]:
        living = [event for event in self._newest.values() if event.table == table and _writes(event)]
        expected = Counter(tuple(_text(event.row.get(name)) for name in columns) for event in living)
        stored = stored_rows(pipeline, table, columns)
        actual = Counter({tuple(map(_text, row)): times for row, times in stored.items()})
        return describe_difference(table, expected, actual)

    @property
    def _schema(self) -> int:
        """Number of changes of the schema so far."""
        return self._cycle // self._every

    def _row(self, key: int) -> dict[str, Any]:
        """Return a new row with the columns that there are now: a note comes, and goes again."""
        size: int | str = self._number if self._schema < 2 else f"size {self._number}"
        row = {"id": key, "name": f"row {self._number}", SIZE: size}
        lap = self._schema // 2
        return row | ({f"note_{lap}": f"note on {self._number}"} if self._schema % 2 else {})

    def _change(self, table: str | None = None) -> list[MadeEvent]:
        """Return the events of a change, of any table unless one is named: two where a key changes."""
        table = table or self._dice.choice((*TABLES, LATER_TABLE) if self._schema else TABLES)
        rows, chance, key = self._rows[table], self._dice.random(), self._dice.randrange(KEYS)
        if key not in rows:
            return [self._event(table, "INSERT", key)]
        if chance < DELETED:
            return [self._event(table, "DELETE", key)]
        if chance < DELETED + MOVED:
            other = next(place for place in range(KEYS + 1) if place not in rows)
            self.incidents["key changes"] += 1
            return [self._event(table, "UPDATE-DELETE", key), self._event(table, "UPDATE-INSERT", other)]
        return [self._event(table, "UPDATE", key)]

    def _event(self, table: str, change: str, key: int) -> MadeEvent:
        self._number += 1
        rows = self._rows[table]
        if change in {"DELETE", "UPDATE-DELETE"}:
            row = rows.pop(key)
        else:
            row = rows[key] = self._row(key)
        return MadeEvent(f"u{self._number:09}", table, change, self._number, row, f"a{self._schema}")

    def _keep_back(self, fresh: list[MadeEvent]) -> list[MadeEvent]:
        """Return the events that come now: the fresh ones but for some, and those that are no longer late."""
        late = [event for event in fresh if self._dice.random() < LATE]
        self.incidents["events late"] += len(late)
        due = [event for cycle, event in self._late if cycle <= self._cycle]
        self._late = [item for item in self._late if item[0] > self._cycle]
        self._late += ((self._cycle + self._dice.randint(1, LATEST_CYCLES), event) for event in late)
        return [*(event for event in fresh if event not in late), *due]

    def _write(self, events: list[MadeEvent]) -> None:
        """Write a file for each table, in any order."""
        self._dice.shuffle(events)
        for table in sorted({event.table for event in events}):
            suffix = self._dice.choice(["jsonl", "jsonl.gz"])
            name = f"{self._cycle:06}-{table}.{suffix}"
            file = WrittenFile(name, tuple(event for event in events if event.table == table))
            if suffix == "jsonl.gz" and self._dice.random() < TORN:
                self._tear(file)
            else:
                self._put(file)

    def _rewrite(self, file: WrittenFile) -> None:
        """Write a file again under its name: all of its events in another order, and some new ones."""
        events = [*file.events, *self._change(file.events[0].table)]
        self._dice.shuffle(events)
        self.incidents["files rewritten"] += 1
        self._put(WrittenFile(file.name, tuple(events)))

    def _tear(self, file: WrittenFile) -> None:
        """Write half of a compressed file."""
        path = self._folder.write(file.events, file.name, compressed=True)
        self._folder.put(path, path.read_bytes()[: path.stat().st_size // 2])
        self.incidents["files torn"] += 1
        self._torn.append(file)

    def _put(self, file: WrittenFile) -> None:
        """Write a file whole, and note what it delivers."""
        self._folder.write(file.events, file.name, compressed=file.name.endswith(".gz"))
        self._recent = [*(old for old in self._recent if old.name != file.name), file][-RECENT_FILES:]
        for event in file.events:
            newest = self._newest.setdefault((event.table, event.row["id"]), event)
            if event.position > newest.position:
                self._newest[event.table, event.row["id"]] = event
            if _writes(event):
                self._columns.setdefault(event.table, set()).update(event.row)


def _writes(event: MadeEvent) -> bool:
    return event.change not in {"DELETE", "UPDATE-DELETE"}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
