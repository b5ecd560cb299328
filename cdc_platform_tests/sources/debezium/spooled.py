"""The events of a spool, and the tables that a simple replay gives; waiting for what an engine writes."""

import json
import time
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

from cdc_platform.sources.debezium.engine.engine_process import EngineProcess
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform_tests.sources.debezium.workload import PREFIX, Checkpoint

WITHIN_S: Final = 60.0
MARKER: Final = "__debezium_unavailable_value"
KEYS: Final = {"items": ("id",), "lines": ("item", "line"), "accounts": ("id",), "whole": ("id",)}
COMPARED: Final = {
    "items": ("id", "n", "big", "tags", "doc"),
    "lines": ("item", "line", "big"),
    "accounts": ("id", "balance"),
    "whole": ("id", "n", "big"),
}
"""Columns whose values are the same text in an event and on the server, but for arrays."""

Table = dict[tuple[Any, ...], dict[str, Any]]
Rows = dict[str, list[tuple[Any, ...]]]


def events_in(spool: Spool) -> list[dict[str, Any]]:
    """Return all events, and look whether their offsets are without gaps."""
    events = [json.loads(line) for file in spool.files() for line in file.lines()]
    first = [json.loads(next(file.lines()))["offset"] for file in spool.files()]
    assert list(range(len(events))) == [event["offset"] for event in events]
    assert first == [file.first_offset for file in spool.files()]
    return events


def rows_in(spool: Spool) -> list[tuple[str, int | None, int | None]]:
    """Return op, key and old key of the changes of rows."""
    return [
        (
            event["value"]["op"],
            (event["key"] or {}).get("id"),
            event["headers"].get("__debezium.oldkey", {}).get("id"),
        )
        for event in events_in(spool)
        if event["value"] is not None and event["value"].get("op") in {"r", "c", "u", "d", "t"}
    ]


def has_snapshot(spool: Spool) -> bool:
    """Return whether the last row of a snapshot is there; the first event only reports that it begins."""
    sources = ((event["value"] or {}).get("source") or {} for event in events_in(spool))
    return any(source.get("snapshot") == "last" for source in sources)


def wait_until(is_so: Callable[[], bool], engine: EngineProcess) -> None:
    """Wait for something that a running engine brings about."""
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert engine.is_running()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def replayed(events: list[dict[str, Any]]) -> dict[str, Rows]:
    """Return the tables at each checkpoint: events applied one after another, duplicates not."""
    tables: dict[str, Table] = {name: {} for name in KEYS}
    rows_by_table: dict[str, Rows] = {}
    seen = set()
    for event in events:
        value = event["value"]
        if value is None or "op" not in value:
            continue
        source = value["source"]
        # Not the order in the transaction: an engine that restarts within one begins with 1, and a truncate
        # that is applied again would remove the rows of later transactions, whose events keep their orders.
        identity = (source["txId"], source["lsn"], event["topic"], str(event["key"]), value["op"])
        if identity in seen:
            continue
        seen.add(identity)
        if value["op"] == "m" and value["message"]["prefix"] == PREFIX:
            number = b64decode(value["message"]["content"]).decode()
            rows_by_table[number] = {name: _texts(name, table.values()) for name, table in tables.items()}
        elif value["op"] != "m":
            _apply(tables[source["table"]], KEYS[source["table"]], event)
    return rows_by_table


def _apply(
    rows: dict[tuple[Any, ...], dict[str, Any]], names: tuple[str, ...], event: dict[str, Any]
) -> None:
    """Apply one event; a row that has moved is found by its old key, which its delete has just emptied."""
    value = event["value"]
    if value["op"] == "t":
        rows.clear()
        return
    key = tuple(event["key"][name] for name in names)
    if value["op"] == "d":
        rows[key] = rows[key] | {"gone": True}
        return
    old = event["headers"].get("__debezium.oldkey")
    before = rows.get(tuple(old[name] for name in names) if old else key, {})
    values = {name: before.get(name) if _is_marked(item) else item for name, item in value["after"].items()}
    rows[key] = values


def _is_marked(item: Any) -> bool:
    return item in (MARKER, [MARKER], "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")


def _texts(table: str, rows: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(_text(row.get(name)) for name in COMPARED[table]) for row in rows if not row.get("gone")),
        key=str,
    )


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return "{" + ",".join("NULL" if item is None else _quoted(item) for item in value) + "}"
    return None if value is None else str(value)


def _quoted(item: str) -> str:
    return f'"{item}"' if " " in item else item


def rows_of(checkpoint: Checkpoint) -> Rows:
    """Return the compared columns of the truth."""
    table_rows = {}
    for table, content in checkpoint.tables.items():
        names = [column["name"] for column in content["columns"]]
        rows = [dict(zip(names, row, strict=True)) for row in content["rows"]]
        table_rows[table] = sorted((tuple(row[name] for name in COMPARED[table]) for row in rows), key=str)
    return table_rows
