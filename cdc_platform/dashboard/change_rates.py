"""Changes per second: history from the log's files, recent rates from the log's snapshot summaries."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, Table
from pyiceberg.types import LongType

from cdc_platform.dashboard.cut_history import CutHistory
from cdc_platform.dashboard.time_span import COLUMNS, Micros, TimeSpan, Values
from cdc_platform.lake.commits.commits import ancestors_of, head
from cdc_platform.pipeline.versions.log_span import changes_by_table

COUNTED_ROWS: Final = 2_000_000
"""Up to this many changes are counted by cycle; beyond that, each file's are spread over its cycles."""
RECENT_S: Final = 600
"""Snapshots of the log stay at least this long, so recent rates need no data."""
RATE_S: Final = 60


@dataclass(frozen=True)
class ChangeRates:
    """Published changes per second in each column; ``is_exact`` if every cycle was counted separately."""

    per_second: Values
    is_exact: bool


@dataclass(frozen=True)
class RecentChanges:
    """Changes per table in the last `RECENT_S`, and changes per second of all tables in the last `RATE_S`."""

    by_table: Mapping[str, int]
    per_second: float


def load_change_rates(log: Table, history: CutHistory, span: TimeSpan) -> ChangeRates:
    """Return the changes per second that the cuts of a history published.

    The changes of a cut are spread over the time since the previous cut; the first cut's rate is unknown.
    """
    if not len(history.cycle):
        return ChangeRates(np.full(COLUMNS, np.nan), is_exact=True)
    scan = log.scan(
        f"cycle >= {history.cycle[0]} and cycle <= {history.cycle[-1]}", selected_fields=("cycle",)
    )
    files = [task.file for task in scan.plan_files()]
    is_exact = sum(file.record_count for file in files) <= COUNTED_ROWS
    cycles, changes = _count(scan) if is_exact else _spread(log, files)
    inside = (cycles >= history.cycle[0]) & (cycles <= history.cycle[-1])
    cuts = np.searchsorted(history.cycle, cycles[inside])
    of_cuts = np.bincount(cuts, changes[inside], minlength=len(history.cycle))
    edges = np.append(span.start_micros, span.ends)
    totals = np.interp(edges, history.published, np.cumsum(of_cuts))
    return ChangeRates(np.diff(totals) / span.column_s, is_exact)


def _count(scan: DataScan) -> tuple[Micros, Values]:
    cycles = scan.to_arrow()["cycle"].to_numpy()
    first = int(cycles.min()) if len(cycles) else 0
    changes = np.bincount(cycles - first)
    return first + np.arange(len(changes), dtype=np.int64), changes.astype(np.float64)


def _spread(log: Table, files: Sequence[DataFile]) -> tuple[Micros, Values]:
    """Return cycles, each with an even share of the changes of its file."""
    field = log.schema().find_field("cycle").field_id
    cycles, changes = [np.empty(0, np.int64)], [np.empty(0)]
    for file in files:
        bounds = (file.lower_bounds[field], file.upper_bounds[field])
        first, last = (int(from_bytes(LongType(), bound)) for bound in bounds)
        # More points than columns would be invisible.
        points = np.linspace(first, last, min(last - first + 1, COLUMNS)).astype(np.int64)
        cycles.append(points)
        changes.append(np.full(len(points), file.record_count / len(points)))
    return np.concatenate(cycles), np.concatenate(changes)


def recent_changes(log: Table, now_micros: int) -> RecentChanges:
    """Return the changes that the newest snapshots of the log report, without reading data."""
    by_table: Counter[str] = Counter()
    last_minute = 0
    for snapshot in ancestors_of(log, head(log)):
        age_s = now_micros / 1e6 - snapshot.timestamp_ms / 1e3
        if age_s > RECENT_S:
            break
        changes = changes_by_table(snapshot)
        by_table.update(changes)
        last_minute += sum(changes.values()) if age_s <= RATE_S else 0
    return RecentChanges(by_table, last_minute / RATE_S)
