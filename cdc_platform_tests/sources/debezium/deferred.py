"""A table with a DEFERRABLE key and REPLICA IDENTITY FULL, and what a connector sends of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform_tests.sources.debezium.written_events import envelope, line
from cdc_platform_tests.support.debezium.connector import Connector

Row = dict[str, Any]

FIRST: Final = {key: {"n": 0, "big": f"row {key}", "xs": [key]} for key in range(1, 7)}


@dataclass
class DeferredConnector(Connector):
    """Sends each row before its change; ``rows`` are those of the database, by key."""

    rows: dict[int, Row] = field(default_factory=dict)

    def insert_all(self, rows: Mapping[int, Row]) -> None:
        """Insert rows in one transaction."""
        self.begin()
        for key, row in rows.items():
            self.rows[key] = dict(row)
            self._data("c", {"id": key}, {"id": key, **row}, None)
        self.end()

    def move_all(self, moves: Mapping[int, int]) -> None:
        """Give rows other keys by one statement, in the order in which it reaches them."""
        taken = {old: self.rows.pop(old) for old in moves}
        for old, new in moves.items():
            lsn = self.lsn + 10
            row, header = taken[old], "__debezium."
            self.send(
                "d", {"id": old}, lsn, before={"id": old, **row}, headers={f"{header}newkey": {"id": new}}
            )
            self.send(
                "c", {"id": new}, lsn, after={"id": new, **row}, headers={f"{header}oldkey": {"id": old}}
            )
            self.rows[new] = row

    def change(self, key: int, **values: Any) -> None:
        """Update a row."""
        before, self.rows[key] = self.rows[key], {**self.rows[key], **values}
        images = {"before": {"id": key, **before}, "after": {"id": key, **self.rows[key]}}
        self.send("u", {"id": key}, self.lsn + 10, **images)

    def send(
        self, op: str, key: Row, lsn: int, headers: Mapping[str, Any] | None = None, **images: Row
    ) -> None:
        """Send a change with the images of its row."""
        self.lsn = lsn
        self.lines.append(line(envelope(op, **images, **self._place()), key, headers=headers or {}))

    def rows_sent(self) -> list[Row]:
        """Return the rows of the database, by key."""
        return [{"id": key, **self.rows[key]} for key in sorted(self.rows)]


def without_headers(lines: list[str]) -> list[str]:
    """Return lines as a dump of topics has them that keeps no headers."""
    messages = map(json.loads, lines)
    return [json.dumps({name: part for name, part in item.items() if name != "headers"}) for item in messages]
