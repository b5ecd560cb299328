"""Snapshots of small tables as a connector sends them, and the rows that are left after all changes."""

import json
from collections.abc import Sequence
from typing import Any, Final

from cdc_platform_tests.sources.debezium.cycles import Record
from cdc_platform_tests.sources.debezium.written_events import envelope, line


def snapshot(lsn: int, keys: Sequence[int | None], **fields: Any) -> list[str]:
    """Return what a connector sends of a snapshot of the table; a row with the key None has none."""
    marks = ["first", *["true"] * (len(keys) - 2), "last"] if len(keys) > 1 else ["last"]
    lines = []
    for mark, key in zip(marks, keys, strict=True):
        source = {"lsn": lsn, "txId": lsn, "sequence": json.dumps([None, str(lsn)]), "snapshot": mark}
        source |= fields
        row: dict[str, Any] = {"n": 1} if key is None else {"id": key, "n": 1}
        lines.append(line(envelope("r", after=row, source=source), None if key is None else {"id": key}))
    return lines


def rows_after(log: Sequence[Record]) -> list[Any]:
    """Return the keys that are left after all changes."""
    rows: list[Any] = []
    for record in log:
        key = json.loads(record["mods"][0]["keys"]).get("id")
        if record["mod_type"] == "TRUNCATE":
            rows = []
        elif record["mod_type"] == "DELETE":
            rows.remove(key)
        elif key not in rows or key is None:
            rows.append(key)
    return rows


ITEMS: Final = "public.items"


def items(lines: Sequence[str]) -> list[str]:
    """Return what is sent of `public.orders` as if it were sent of `public.items`."""
    return [text.replace('"orders"', '"items"') for text in lines]
