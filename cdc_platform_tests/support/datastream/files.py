"""Folders of files as Datastream writes them, made up for tests: MySQL's events as JSON lines."""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cdc_platform.model.base.timestamps import to_rfc3339

ORIGIN: Final = 1_800_000_000_000_000
"""When the made-up source begins; a position of its log is so many seconds later."""


@dataclass(frozen=True)
class MadeEvent:
    """One event of MySQL; `position` is its place in the log, `0` that of a backfill.

    Its source's clock has come to as many seconds, or to `at_s`: statements begin before they commit.
    """

    uuid: str
    table: str
    change: str
    position: int
    row: Mapping[str, Any] = field(default_factory=dict)
    schema_key: str = "a1"
    at_s: int | None = None
    keys: tuple[str, ...] = ("id",)

    @property
    def is_backfill(self) -> bool:
        """Whether a backfill has read the row."""
        return self.position == 0

    @property
    def record_id(self) -> str:
        """The identity of its record: of an event that belongs to no transaction it is its own, twice."""
        return f"shop.{self.table}/{self.uuid}/shop.{self.table}/{self.uuid}"

    def to_json(self) -> dict[str, Any]:
        """Return the event as Datastream writes it."""
        moment = to_rfc3339(ORIGIN + (self.position if self.at_s is None else self.at_s) * 1_000_000)
        return {
            "uuid": self.uuid,
            "read_timestamp": moment,
            "source_timestamp": moment,
            "object": f"shop_{self.table}",
            "read_method": "mysql-backfill-fulldump" if self.is_backfill else "mysql-cdc-binlog",
            "stream_name": "projects/1/locations/here/streams/shop",
            "schema_key": self.schema_key,
            "sort_keys": [],
            "source_metadata": {
                "table": self.table,
                "database": "shop",
                "primary_keys": list(self.keys),
                "log_file": "" if self.is_backfill else "mysql-bin.000001",
                "log_position": self.position,
                "change_type": self.change,
                "is_deleted": self.change in {"DELETE", "UPDATE-DELETE"},
            },
            "payload": dict(self.row),
        }


class StreamFolder:
    """A folder that a stream writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = 0

    def write(
        self, events: Iterable[MadeEvent], name: str | None = None, *, compressed: bool = False
    ) -> Path:
        """Write events of one table as a file of their object, which takes the place of one of its name."""
        listed = list(events)
        self._files += 1
        suffix = "jsonl.gz" if compressed else "jsonl"
        folder = self.path / f"shop_{listed[0].table}" / "2027/01/15/08/00"
        lines = "".join(f"{json.dumps(event.to_json())}\n" for event in listed).encode()
        return self.put(
            folder / (name or f"{self._files:04}.{suffix}"), gzip.compress(lines) if compressed else lines
        )

    def put(self, path: Path, data: bytes) -> Path:
        """Write the bytes of a file at once, as an object store does."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_bytes(data)
        draft.replace(path)
        return path


def end_state(events: Iterable[MadeEvent]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the rows that events of any order leave, by table and key: of each, the newest counts."""
    newest: dict[tuple[str, int], MadeEvent] = {}
    for event in events:
        key = (event.table, event.row["id"])
        newest_event = newest.setdefault(key, event)
        newest[key] = max(newest_event, event, key=lambda item: (item.position, item.change != "DELETE"))
    return {key: event.row for key, event in newest.items() if event.change != "DELETE"}
