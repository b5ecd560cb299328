"""The ledger: which files, in which version, or which partitions, up to which offset, have been read.

It is derived from what the committed ticks report, on from where the stored one ends.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from cdc_platform.lake.commits import TICK, head, read_mark
from cdc_platform.lake.lake import RAW, READ, Lake
from cdc_platform.model.records import RecordKind
from cdc_platform.model.schemas import FILES


def read_ledger(lake: Lake) -> Mapping[str, str]:
    """Return what has been read, with its version, and store what is new of it; needs no Spark."""
    committed = read_mark(lake.system_table(RAW)).tick
    while True:
        stored = lake.system_table(READ)
        mark = read_mark(stored)
        if mark.tick >= committed:
            return _stored_ledger(stored)
        new = _reported_after(lake, mark.tick, committed)
        try:
            stored.append(new, snapshot_properties={TICK: str(committed)})
        except CommitFailedException:
            # Somebody else has derived the same meanwhile.
            continue


@dataclass(frozen=True)
class _Version:
    """A snapshot of the stored ledger; what it holds never changes."""

    location: str
    snapshot_id: int
    table: Table = field(compare=False)


def _stored_ledger(table: Table) -> Mapping[str, str]:
    snapshot = head(table)
    return _read(_Version(table.location(), snapshot.snapshot_id, table)) if snapshot is not None else {}


# A tick asks for it twice; the newest of a few pipelines are kept.
@lru_cache(maxsize=4)
def _read(version: _Version) -> Mapping[str, str]:
    rows = version.table.scan(snapshot_id=version.snapshot_id).to_arrow().sort_by("tick")
    return dict(zip(rows["path"].to_pylist(), rows["version"].to_pylist(), strict=True))


def _reported_after(lake: Lake, after_exclusive: int, until_inclusive: int) -> pa.Table:
    """Return what the ticks of an interval have read to the end."""
    window = f"kind = '{RecordKind.FILE.value}' and tick > {after_exclusive} and tick <= {until_inclusive}"
    scan = lake.system_table(RAW).scan(row_filter=window, selected_fields=("kind", "tick", "event"))
    rows = scan.to_arrow().select(["tick", "event"]).to_pylist()
    read = [(row["tick"], row["event"]["origin"], json.loads(row["event"]["metadata"])) for row in rows]
    found = [(tick, path, told["version"]) for tick, path, told in read if told["is_read"]]
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    return pa.table(dict(zip(FILES.names, columns, strict=True)), FILES)
