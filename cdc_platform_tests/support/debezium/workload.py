"""A steady workload of three PostgreSQL tables, as Debezium has it, from files or from topics."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput, Input
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform_tests.servers.kafka import Broker
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.written_events import envelope, line
from cdc_platform_tests.support.workloads.workload import Place, Rows, describe_difference, stored_rows

ITEMS: Final = "public.items"
LINES: Final = "public.lines"
ENTRIES: Final = "public.entries"
"""Table without a key, under REPLICA IDENTITY FULL."""
SIGNALS: Final = "public.signals"
"""Table of the connector's signals, if it reads snapshots by chunks."""
COLUMNS: Final = {
    ITEMS: {"id": "bigint", "n": "bigint", "big": "text"},
    LINES: {"item": "bigint", "line": "bigint", "big": "text"},
    ENTRIES: {"n": "bigint", "note": "text"},
}
ITEM_KEYS: Final = 200
LINES_OF_ITEM: Final = 3
NOTES: Final = 20
ENTRIES_KEPT: Final = 100
LETTERS: Final = 300
"""Letters of a large value."""
PARTITIONS: Final = 3
SENT_EVERY: Final = 10
"""A file takes the messages of so many cycles; in the last of them the newest transactions come again."""
TRANSACTION_MS: Final = 50
FIRST_MS: Final = 1_700_000_000_000
FIRST_LSN: Final = 1000

Key = tuple[int, ...]


class Outlet(Protocol):
    """Sink of a connector."""

    def open(self) -> Input:
        """Prepare it, and return the pipeline's settings for it."""
        ...

    def write(self, lines: Sequence[str], cycle: int) -> None:
        """Write messages in the order of their transactions."""
        ...


@dataclass(frozen=True)
class Files:
    """Files that grow for some cycles each."""

    folder: Path

    def open(self) -> FilesInput:
        """Make the folder."""
        self.folder.mkdir(parents=True)
        return FilesInput(str(self.folder))

    def write(self, lines: Sequence[str], cycle: int) -> None:
        """Let the newest file grow."""
        append(self.folder / f"{cycle // SENT_EVERY:06}.jsonl", lines)


@dataclass(frozen=True)
class Topics:
    """Topics of a broker, under their own prefix."""

    broker: Broker
    prefix: str

    def open(self) -> KafkaInput:
        """Create the topics."""
        for table in COLUMNS:
            self.broker.create(f"{self.prefix}.{table}", PARTITIONS)
        self.broker.create(f"{self.prefix}.transaction")
        return KafkaInput(self.broker.address, f"{self.prefix}[.].*")

    def write(self, lines: Sequence[str], cycle: int) -> None:  # noqa: ARG002  topics have no files
        """Send the messages, each to the partition of its key."""
        self.broker.send(lines, {f"{self.prefix}.{table}": PARTITIONS for table in COLUMNS})


@dataclass
class Connector:
    """Writes transactions as Debezium does, with their metadata.

    Args:
        prefix: first part of every topic's name.
        lines: the messages so far that nobody has taken.
    """

    prefix: str
    lines: list[str] = field(default_factory=list)
    _transaction: int = 0
    _lsn: int = FIRST_LSN
    _commit: int = FIRST_LSN
    _order: int = 0

    def begin(self) -> None:
        """Begin the next transaction."""
        self._transaction += 1
        self._order = 0
        self._boundary("BEGIN", None)

    def end(self) -> None:
        """End the transaction."""
        self._lsn += 5
        self._boundary("END", self._order)
        self._commit = self._lsn

    def take(self) -> list[str]:
        """Return the messages, and forget them."""
        lines, self.lines = self.lines, []
        return lines

    def change(
        self,
        table: str,
        op: str,
        key: Mapping[str, int | str] | None,
        rows: tuple[Any, Any],
        headers: Mapping[str, Any] | None = None,
        *,
        is_same_place: bool = False,
    ) -> None:
        """Write an event, and after a delete its tombstone; ``rows`` are the row before and after."""
        self._order += 1
        self._lsn += 0 if is_same_place else 10
        before, after = rows
        block = {"id": f"{self._transaction}:{self._lsn}", "total_order": self._order}
        value = envelope(op, before=before, after=after, source=self._source(table), transaction=block)
        self._write(table, value, key, headers or {})
        if op == "d":
            self._write(table, None, key, headers or {})

    def snapshot(self, rows: Sequence[tuple[str, Mapping[str, int] | None, Mapping[str, Any]]]) -> None:
        """Write a snapshot: all rows, table by table, each with its table and its key."""
        self._lsn += 10
        for number, (table, key, row) in enumerate(rows):
            is_first = number == 0 or rows[number - 1][0] != table
            is_last = number + 1 == len(rows) or rows[number + 1][0] != table
            mark = (
                "first_in_data_collection" if is_first else "last_in_data_collection" if is_last else "true"
            )
            mark = "first" if number == 0 else "last" if number + 1 == len(rows) else mark
            sequence = json.dumps([None, str(self._lsn)], separators=(",", ":"))
            source = self._source(table) | {"sequence": sequence, "snapshot": mark}
            self._write(table, envelope("r", after=row, source=source), key, {})
        self._lsn += 5
        self._commit = self._lsn

    def read_window(self, table: str, rows: Sequence[tuple[Mapping[str, int], Mapping[str, Any]]]) -> None:
        """Write a chunk of an incremental snapshot between its signals, which are a transaction each.

        A row, with its key, comes within the second one, and knows the commit before it and nothing else.
        """
        self.begin()
        self._signal("open")
        self.end()
        self.begin()
        sequence = json.dumps([str(self._commit)] * 2, separators=(",", ":"))
        place = {"sequence": sequence, "snapshot": "incremental", "lsn": None, "txId": None}
        for key, row in rows:
            self._write(table, envelope("r", after=row, source=self._source(table) | place), key, {})
        self._signal("close")
        self.end()

    def _signal(self, kind: str) -> None:
        key = {"id": f"{self._transaction}-{kind}"}
        self.change(SIGNALS, "c", key, (None, {**key, "type": f"snapshot-window-{kind}", "data": "{}"}))

    @property
    def _now_ms(self) -> int:
        return FIRST_MS + self._transaction * TRANSACTION_MS

    def _source(self, table: str) -> dict[str, Any]:
        return {
            "name": self.prefix,
            "table": table.partition(".")[2],
            "txId": self._transaction,
            "lsn": self._lsn,
            "sequence": json.dumps([str(self._commit), str(self._lsn)], separators=(",", ":")),
            "ts_ms": self._now_ms,
        }

    def _boundary(self, status: str, count: int | None) -> None:
        name = f"{self._transaction}:{self._lsn}"
        value = {
            "status": status,
            "id": name,
            "event_count": count,
            "data_collections": None,
            "ts_ms": self._now_ms,
        }
        self._write("transaction", value, {"id": name}, {})

    def _write(self, topic: str, value: Any, key: Any, headers: Mapping[str, Any]) -> None:
        full = f"{self.prefix}.{topic}"
        self.lines.append(line(value, key, topic=full, headers=headers, timestamp=self._now_ms))


class Sessions:
    """Transactions over all tables; updates leave most large values out, and keys change now and then."""

    def __init__(self, place: Place, strategy: Strategy, outlet: Outlet) -> None:
        source = DebeziumSettings(
            outlet.open(), columns=COLUMNS, strategy=strategy, has_transaction_topic=True
        )
        self.settings = place.settings(source, ITEMS)
        self._outlet, self._changes = outlet, place.changes
        self._sent, self._cycle = Connector(place.name), 0
        self._dice = random.Random(place.seed)  # noqa: S311  an input of tests, not a secret
        self._serial = 0
        self._items: dict[Key, tuple[int, str | None]] = {}
        self._lines: dict[Key, str | None] = {}
        self._entries: list[tuple[int, str]] = []

    def send(self) -> None:
        """Write the messages of some transactions."""
        self._transact()
        lines = self._sent.take()
        self._cycle += 1
        is_again = self._cycle % SENT_EVERY == 0
        self._outlet.write([*lines, *lines[len(lines) // 2 :]] if is_again else lines, self._cycle)

    def _transact(self) -> None:
        """Let transactions happen until there are enough messages."""
        while len(self._sent.lines) < self._changes:
            self._sent.begin()
            for _ in range(self._dice.randint(1, 6)):
                self._dice.choices((self._item, self._move, self._line, self._entry), (4, 1, 2, 2))[0]()
            self._sent.end()

    def finish(self) -> None:
        """Do nothing: every transaction has been written whole."""

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare all tables with the rows that the transactions have left."""
        expected: dict[str, Rows] = {
            ITEMS: Counter((*key, *row) for key, row in self._items.items()),
            LINES: Counter((*key, big) for key, big in self._lines.items()),
            ENTRIES: Counter(self._entries),
        }
        return [
            text
            for table, rows in expected.items()
            for text in describe_difference(table, rows, stored_rows(pipeline, table, COLUMNS[table]))
        ]

    def _item(self) -> None:
        key = (self._dice.randrange(ITEM_KEYS),)
        named = {"id": key[0]}
        if key not in self._items:
            row = self._items[key] = (self._next(), self._large())
            self._sent.change(ITEMS, "c", named, (None, self._new_row(key, *row)))
        elif self._dice.random() < 0.2:
            del self._items[key]
            self._sent.change(ITEMS, "d", named, ({**named, "n": None, "big": None}, None))
        else:
            number = self._next()
            big, shown = self._updated(self._items[key][1])
            self._items[key] = (number, big)
            self._sent.change(ITEMS, "u", named, (None, self._new_row(key, number, shown)))

    def _move(self) -> None:
        if not self._items:
            return
        old = self._dice.choice(sorted(self._items))
        new = next((key,) for key in range(ITEM_KEYS + 1) if (key,) not in self._items)
        number = self._next()
        big, shown = self._updated(self._items.pop(old)[1])
        self._items[new] = (number, big)
        old_key, new_key = {"id": old[0]}, {"id": new[0]}
        headers = {"__debezium.newkey": new_key}
        self._sent.change(ITEMS, "d", old_key, ({**old_key, "n": None, "big": None}, None), headers)
        headers = {"__debezium.oldkey": old_key}
        row = self._new_row(new, number, shown)
        self._sent.change(ITEMS, "c", new_key, (None, row), headers, is_same_place=True)

    def _new_row(self, key: Key, number: int, big: str | None) -> dict[str, Any]:
        """Return the row of an item after an insert or an update, as an event shows it."""
        return {"id": key[0], "n": number, "big": big}

    def _line(self) -> None:
        key = (self._dice.randrange(ITEM_KEYS), self._dice.randrange(LINES_OF_ITEM))
        named = dict(zip(("item", "line"), key, strict=True))
        if key not in self._lines:
            self._lines[key] = self._large()
            self._sent.change(LINES, "c", named, (None, {**named, "big": self._lines[key]}))
        elif self._dice.random() < 0.3:
            del self._lines[key]
            self._sent.change(LINES, "d", named, ({**named, "big": None}, None))
        else:
            self._lines[key], shown = self._updated(self._lines[key])
            self._sent.change(LINES, "u", named, (None, {**named, "big": shown}))

    def _entry(self) -> None:
        chance, full = self._dice.random(), len(self._entries) >= ENTRIES_KEPT
        before = self._entries.pop(self._dice.randrange(len(self._entries))) if self._entries else None
        if before is not None and (full or chance < 0.3):
            self._sent.change(ENTRIES, "d", None, (_entry_row(before), None))
            return
        after = (self._dice.randrange(3), f"note {self._dice.randrange(NOTES)}")
        self._entries.append(after)
        if before is not None and chance < 0.6:
            self._sent.change(ENTRIES, "u", None, (_entry_row(before), _entry_row(after)))
            return
        if before is not None:
            self._entries.append(before)
        self._sent.change(ENTRIES, "c", None, (None, _entry_row(after)))

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _large(self) -> str | None:
        if self._dice.random() < 0.1:
            return None
        return f"{self._dice.getrandbits(64):016x}" * (LETTERS // 16)

    def _updated(self, big: str | None) -> tuple[str | None, str | None]:
        """Return a large value after an update, and what the event shows of it."""
        if big is not None and self._dice.random() < 0.7:
            return big, DEFAULT_PLACEHOLDER
        fresh = self._large()
        return fresh, fresh


def _entry_row(entry: tuple[int, str]) -> dict[str, Any]:
    return {"n": entry[0], "note": entry[1]}
