"""Reads of files and topics over time: one lane for each folder or topic."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc

from cdc_platform.dashboard.cut_history import CutHistory
from cdc_platform.dashboard.time_span import COLUMNS, TimeSpan
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.model.base.stored_names import READ_PROGRESS
from cdc_platform.model.stream.unread import FORGOTTEN, UNREAD

SHOWN: Final = 12
"""Maximum number of lanes in the chart: those with the newest reads."""


@dataclass(frozen=True)
class ReadLane:
    """A folder of files, or a topic: its number of reads in each column, and in total."""

    name: str
    columns: tuple[int, ...]
    reads: int


@dataclass(frozen=True)
class ReadLanes:
    """The lanes with the newest reads, and the number of all lanes with reads in the span."""

    lanes: tuple[ReadLane, ...]
    total: int


def load_read_lanes(lake: Lake, history: CutHistory, span: TimeSpan) -> ReadLanes:
    """Return the reads of a history's cycles."""
    if not len(history.cycle):
        return ReadLanes((), 0)
    rows = lake.system_table(READ_PROGRESS).scan(
        f"cycle >= {history.cycle[0]} and (version is null or version != '{FORGOTTEN}')",
        selected_fields=("cycle", "path"),
    )
    table = rows.to_arrow()
    table = table.filter(pc.invert(pc.starts_with(table["path"], UNREAD)))
    places = np.array([folder_of(path) for path in table["path"].to_pylist()], dtype=object)
    moments = history.moments_of(table["cycle"].to_numpy())
    inside = (moments >= span.start_micros) & (moments <= span.end_micros)
    places, columns = places[inside], span.column_of(moments[inside])
    lanes = [_lane(name, columns[places == name]) for name in sorted(set(places))]
    newest = sorted(lanes, key=lambda lane: -max(np.flatnonzero(lane.columns), default=0))[:SHOWN]
    return ReadLanes(tuple(sorted(newest, key=lambda lane: lane.name)), len(lanes))


def _lane(name: str, columns: np.ndarray) -> ReadLane:
    counts = np.bincount(columns, minlength=COLUMNS)
    return ReadLane(name, tuple(int(count) for count in counts), len(columns))


def folder_of(path: str) -> str:
    """Return the topic or folder of a read, without folders named by numbers, such as years and days."""
    parts = path.split("/")[:-1]
    while parts and parts[-1].isdigit():
        parts.pop()
    return "/".join(parts) or "files"
