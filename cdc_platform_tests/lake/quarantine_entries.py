"""Rows of quarantine and of the read progress, written without Spark."""

from typing import Any

import pyarrow as pa

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.model.base.schemas import QUARANTINE_ROWS, READ_PROGRESS_ROWS
from cdc_platform.model.base.stored_names import CYCLE, LOG, QUARANTINE, RAW, READ_PROGRESS
from cdc_platform.model.base.timestamps import to_datetime

MOMENT = 1_800_000_000_000_000


def quarantine_entry(event: str, origin: str | None = None, cycle: int = 1, **columns: Any) -> dict[str, Any]:
    """Return a row of quarantine: an event with its own text."""
    return {
        "cycle": cycle,
        "reason": "The event has no ordering key",
        "partition_token": "users",
        "record_timestamp": to_datetime(MOMENT + cycle),
        "transaction_id": event,
        "record_id": f"{event}/{event}",
        "table_name": "users",
        "record": f'{{"record_sequence":"{event}","event":{{"fault":"no ordering key","position":0}}}}',
        "origin": origin,
        **columns,
    }


def quarantine(lake: Lake, cycle: int, *rows: dict[str, Any]) -> None:
    """Commit a cycle that has read and ordered the quarantined records."""
    properties = {CYCLE: str(cycle)}
    lake.system_table(QUARANTINE).append(
        pa.Table.from_pylist(list(rows), QUARANTINE_ROWS), snapshot_properties=properties
    )
    for name in (RAW, LOG):
        table = lake.system_table(name)
        table.append(table.schema().as_arrow().empty_table(), snapshot_properties=properties)


def note_read(lake: Lake, cycle: int, *paths: str) -> None:
    """Note in the read progress what a cycle has read."""
    rows = [{"cycle": cycle, "path": path, "version": "1"} for path in paths]
    table = pa.Table.from_pylist(rows, READ_PROGRESS_ROWS)
    lake.system_table(READ_PROGRESS).append(table, snapshot_properties={CYCLE: str(cycle)})
