"""A connector that restarts and sends again, as made up in memory, and how a reader takes its messages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with

WAL_BEFORE: Final = 100


@dataclass
class Connector:
    """Writes what a connector sends, transaction by transaction."""

    commit: int = WAL_BEFORE
    lsn: int = WAL_BEFORE
    transaction: int = 700
    order: int = 0
    lines: list[str] = field(default_factory=list)
    is_full: bool = False
    """Whether updates and deletes have the row before, as with REPLICA IDENTITY FULL."""
    images: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """The present rows, by the text of their keys."""

    def begin(self) -> None:
        """Begin the next transaction."""
        self.transaction += 1
        self.order = 0
        self._boundary("BEGIN")

    def insert(self, key: int | None, n: int | str = 0, *, lsn: int | None = None, **row: Any) -> None:
        """Insert a row; without its own lsn it has the next position."""
        named = {"id": key, "n": n} if key is not None else {"n": n}
        self._data("c", {"id": key} if key is not None else None, named | row, lsn)

    def update(self, key: int, **row: Any) -> None:
        """Update a row."""
        self._data("u", {"id": key}, {"id": key, **row}, None)

    def delete(self, key: int) -> None:
        """Delete a row."""
        self._data("d", {"id": key}, None, None)

    def move(self, old: int, new: int, **row: Any) -> None:
        """Change the key of a row."""
        lsn = self.lsn + 10
        self._data("d", {"id": old}, None, lsn, {"__debezium.newkey": {"id": new}})
        self._data("c", {"id": new}, {"id": new, **row}, lsn, {"__debezium.oldkey": {"id": old}})

    def truncate(self) -> None:
        """Empty the table."""
        self._data("t", None, None, None)

    def emit(self, content: str, *, transactional: bool = True) -> None:
        """Write a message, whose content is base64."""
        self.lsn += 10
        place = self._place() if transactional else {"source": self._source(None), "transaction": None}
        message = {"prefix": "app", "content": content}
        self.lines.append(line(envelope("m", message=message, **place), {"prefix": "app"}))

    def end(self, count: int | None = None) -> None:
        """End the transaction; what it counts may be short of what was there."""
        self.lsn += 5
        self._boundary("END", self.order if count is None else count)
        self.commit = self.lsn

    def whole(self, *keys: int) -> None:
        """Write a transaction that inserts rows."""
        self.begin()
        for key in keys:
            self.insert(key, self.transaction)
        self.end()

    def _data(
        self, op: str, key: Any, after: Any, lsn: int | None, headers: dict[str, Any] | None = None
    ) -> None:
        self.lsn = self.lsn + 10 if lsn is None else lsn
        before = self.images.pop(str(key), None) if self.is_full and op != "c" else None
        self.images[str(key)] = after
        value = envelope(op, before=before, after=after, **self._place())
        self.lines.append(line(value, key, headers=headers or {}))

    def _place(self) -> dict[str, Any]:
        self.order += 1
        block = {"id": f"{self.transaction}:{self.lsn}", "total_order": self.order}
        return {"source": self._source(self.transaction), "transaction": block}

    def _source(self, transaction: int | None) -> dict[str, Any]:
        return {
            "txId": transaction,
            "lsn": self.lsn,
            "sequence": json.dumps([str(self.commit), str(self.lsn)], separators=(",", ":")),
            "ts_ms": 1_700_000_000_000 + self.transaction,
        }

    def _boundary(self, status: str, count: int | None = None) -> None:
        value = {
            "status": status,
            "id": f"{self.transaction}:{self.lsn}",
            "event_count": count,
            "data_collections": None,
            "ts_ms": 1_700_000_000_000 + self.transaction,
        }
        self.lines.append(line(value, {"id": value["id"]}, topic="s.transaction"))


def cycles_over(folder: Path) -> Cycles:
    """Return cycles over the files of a folder, whose table has or has not a key."""
    return Cycles(settings_with(input=FilesInput(str(folder)), has_transaction_topic=True))


def feed(cycles: Cycles, lines: Sequence[str], name: str = "events.jsonl") -> Cycles:
    """Let a file grow, and run a cycle."""
    append(Path(cycles.settings.folder) / name, lines)
    cycles.read()
    return cycles


def keys_of(cycles: Cycles) -> list[Any]:
    """Return the keys of the log, in its order; a truncate has none."""
    return [json.loads(row["mods"][0]["keys"]).get("id") for row in cycles.log]


def faults_of(cycles: Cycles) -> list[str]:
    """Return why events did not enter the log."""
    return [row["event"]["fault"] for row in cycles.log if row["event"]["fault"] is not None]
