"""Content of a window of raw records, from a single scan of few columns; needs no Spark.

A repeated event states the same source time as before, if it states one. So the log is read from the earliest
source time of a window on, which is nearly always recent, even if events may repeat for a long time.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from cdc_platform.lake.state.repeated_texts import read_repeated
from cdc_platform.model.base.timestamps import FIRST_MICROS, from_datetime, to_datetime
from cdc_platform.model.stream.records import ChangeKind, ModType

_SHAPE: Final = ("table_name", "column_types")
_COUNTED: Final = ("kind", "record_timestamp")
_OF_EVENTS: Final = ("mod_type", "event.source_timestamp")
_OF_SNAPSHOTS: Final = pa.array([ModType.SNAPSHOT.value, ModType.TRUNCATE.value])
_SLACK_MICROS: Final = 1_000_000
"""A newer connector may state microseconds for an event for which an older one stated milliseconds."""


@dataclass(frozen=True)
class WindowContent:
    """Records of a window, with the facts that limit the search for their duplicates in the log.

    Args:
        records: number of records, including duplicates.
        since_micros: earliest source time of a change; None if no change states one.
        lacks_moments: whether some changes, usable or not, do not state a source time.
        has_snapshots: whether some are rows of snapshots, or truncates before them, which have another time
            when they are read again.
        tables: the source tables that the records change.
        shapes: these tables, each with the column types of some of its events.
    """

    records: int = 0
    since_micros: int | None = None
    lacks_moments: bool = False
    has_snapshots: bool = False
    tables: frozenset[str] = frozenset()
    shapes: frozenset[tuple[str, str]] = frozenset()

    def plus(self, other: "WindowContent") -> "WindowContent":
        """Return the content of both."""
        moments = [micros for micros in (self.since_micros, other.since_micros) if micros is not None]
        return WindowContent(
            self.records + other.records,
            min(moments, default=None),
            self.lacks_moments or other.lacks_moments,
            self.has_snapshots or other.has_snapshots,
            self.tables | other.tables,
            self.shapes | other.shapes,
        )

    @property
    def logged_before(self) -> str:
        """SQL of the changes of the log that records of the window may equal."""
        if self.lacks_moments:
            return "true"
        # A connector may state the time now although it did not when the event first came.
        parts = ["source_timestamp IS NULL"]
        if self.since_micros is not None:
            since = to_datetime(max(FIRST_MICROS, self.since_micros - _SLACK_MICROS)).isoformat()
            parts.append(f"source_timestamp >= timestamp'{since}'")
        if self.has_snapshots:
            parts.append(f"change_kind IN ('{ChangeKind.SNAPSHOT.value}', '{ChangeKind.TRUNCATE.value}')")
        return f"({' OR '.join(parts)})"


def measure_content(raw: Table, records: str) -> WindowContent:
    """Return the content of the raw records that a filter selects."""
    is_of_events = "event" in raw.schema().as_arrow().names
    fields = (*_COUNTED, *(_OF_EVENTS if is_of_events else ()))
    repeated = _SHAPE if is_of_events else _SHAPE[:1]
    content = WindowContent()
    for batch in read_repeated(raw, records, repeated, *fields):
        own = content_of(batch) if is_of_events else WindowContent(batch.num_rows, tables=_tables_in(batch))
        content = content.plus(own)
    return content


def _tables_in(batch: pa.Table | pa.RecordBatch) -> frozenset[str]:
    return frozenset(pc.unique(batch.column(_SHAPE[0])).to_pylist()) - {None}


def shapes_in(batch: pa.Table | pa.RecordBatch) -> frozenset[tuple[str, str]]:
    """Return the tables of raw records, each with the column types of some of its records."""
    columns = {name: batch.column(name) for name in _SHAPE}
    rows = pa.table(columns).group_by(list(_SHAPE)).aggregate([]).to_pylist()
    return frozenset((row["table_name"], row["column_types"]) for row in rows if None not in row.values())


def content_of(batch: pa.Table | pa.RecordBatch) -> WindowContent:
    """Return the content of some raw records of an event source."""
    moments = pc.struct_field(batch.column("event"), "source_timestamp")
    first = pc.min(moments).as_py()
    return WindowContent(
        batch.num_rows,
        None if first is None else from_datetime(first),
        _any(pc.is_null(moments)),
        _any(pc.is_in(batch.column("mod_type"), _OF_SNAPSHOTS)),
        _tables_in(batch),
        shapes_in(batch),
    )


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())
