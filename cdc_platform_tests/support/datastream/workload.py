"""Steady workloads of Datastream's files, of tables with and without a key."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.workloads.workload import Place, describe_difference, stored_rows

TABLES: Final = ("users", "orders")
KEYS: Final = 200
LATE, REPEATED, MOVED, DELETED = 0.05, 0.05, 0.1, 0.2
VISITS: Final = "visits"
"""Table without a key of which every event is a row."""
TAGS: Final = "tags"
"""Table without a key whose rows are known by a digest."""
NAMES: Final = 60


@dataclass
class _Writer:
    """Numbers events, and writes files of them, with some that come a cycle late and some that come again."""

    place: Place
    folder: StreamFolder = field(init=False)
    dice: random.Random = field(init=False)
    number: int = 0
    late: list[MadeEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = StreamFolder(self.place.folder)
        self.dice = random.Random(self.place.seed)  # noqa: S311  an input of tests, not a secret

    def event(self, table: str, change: str, row: dict[str, Any], keys: tuple[str, ...]) -> MadeEvent:
        """Return the next event of the log."""
        self.number += 1
        return MadeEvent(f"u{self.number:09}", table, change, self.number, row, keys=keys)

    def write(self, events: list[MadeEvent]) -> None:
        """Write a file for each table."""
        kept_back = self._some(events, LATE)
        sent = [event for event in [*events, *self.late] if event not in kept_back]
        sent += self._some(sent, REPEATED)
        self.late = kept_back
        self.dice.shuffle(sent)
        for table in sorted({event.table for event in sent}):
            self.folder.write([event for event in sent if event.table == table])

    def write_late(self) -> None:
        """Write the events that were kept back."""
        events, self.late = self.late, []
        for table in sorted({event.table for event in events}):
            self.folder.write([event for event in events if event.table == table])

    def _some(self, events: list[MadeEvent], share: float) -> list[MadeEvent]:
        return [event for event in events if self.dice.random() < share]


def _settings(place: Place, **rest: Any) -> PipelineSettings:
    source = DatastreamSettings(str(place.folder), table_name="{table}", **rest)
    return place.settings(source, "users")


class KeyedFiles:
    """Inserts, updates, deletes and key changes of two tables of MySQL."""

    def __init__(self, place: Place) -> None:
        self.settings = _settings(place)
        self._writer = _Writer(place)
        self._changes = place.changes
        self._rows: dict[str, dict[int, str]] = {table: {} for table in TABLES}

    def send(self) -> None:
        """Write a file of each table."""
        events = list[MadeEvent]()
        while len(events) < self._changes:
            events += self._change(self._writer.dice.choice(TABLES))
        self._writer.write(events)

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare both tables with the rows that the newest changes have left."""
        return [
            text
            for table, rows in self._rows.items()
            for text in describe_difference(
                table, Counter(rows.items()), stored_rows(pipeline, table, ("id", "name"))
            )
        ]

    def finish(self) -> None:
        """Write what is late."""
        self._writer.write_late()

    def _change(self, table: str) -> list[MadeEvent]:
        rows, dice = self._rows[table], self._writer.dice
        key, chance = dice.randrange(KEYS), dice.random()
        if key not in rows:
            return [self._put(table, "INSERT", key)]
        if chance < DELETED:
            return [self._remove(table, "DELETE", key)]
        if chance < DELETED + MOVED:
            other = next(place for place in range(KEYS + 1) if place not in rows)
            return [self._remove(table, "UPDATE-DELETE", key), self._put(table, "UPDATE-INSERT", other)]
        return [self._put(table, "UPDATE-INSERT", key)]

    def _put(self, table: str, change: str, key: int) -> MadeEvent:
        event = self._event(table, change, key, f"row {self._writer.number}")
        self._rows[table][key] = event.row["name"]
        return event

    def _remove(self, table: str, change: str, key: int) -> MadeEvent:
        return self._event(table, change, key, self._rows[table].pop(key))

    def _event(self, table: str, change: str, key: int, name: str) -> MadeEvent:
        return self._writer.event(table, change, {"id": key, "name": name}, ("id",))


class KeylessFiles:
    """Inserts into one table without a key, inserts and deletes of rows of another one."""

    def __init__(self, place: Place) -> None:
        self.settings = _settings(place, keyless={TAGS: "row_hash"})
        self._writer = _Writer(place)
        self._changes = place.changes
        self._visits = Counter[tuple[Any, ...]]()
        self._tags = set[str]()

    def send(self) -> None:
        """Write a file of each table."""
        self._writer.write(
            [self._visit() if number % 4 == 0 else self._tag() for number in range(self._changes)]
        )

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare both tables with the rows that were sent."""
        tags = Counter((name,) for name in self._tags)
        return [
            *describe_difference(VISITS, self._visits, stored_rows(pipeline, VISITS, ("name",))),
            *describe_difference(TAGS, tags, stored_rows(pipeline, TAGS, ("name",))),
        ]

    def finish(self) -> None:
        """Write what is late."""
        self._writer.write_late()

    def _visit(self) -> MadeEvent:
        name = f"visitor {self._writer.dice.randrange(NAMES)}"
        self._visits[name,] += 1
        return self._writer.event(VISITS, "INSERT", {"name": name}, ())

    def _tag(self) -> MadeEvent:
        name = f"tag {self._writer.dice.randrange(NAMES)}"
        is_there = name in self._tags
        self._tags ^= {name}
        return self._writer.event(TAGS, "DELETE" if is_there else "INSERT", {"name": name}, ())


class AllFiles:
    """The tables of both, with a key and without one, in one stream."""

    def __init__(self, place: Place) -> None:
        self._parts = KeyedFiles(place), KeylessFiles(place)
        self.settings = self._parts[1].settings

    def send(self) -> None:
        """Write a file of each table."""
        for part in self._parts:
            part.send()

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare all tables with what was sent."""
        return [text for part in self._parts for text in part.differences(pipeline)]

    def finish(self) -> None:
        """Write what is late."""
        for part in self._parts:
            part.finish()
