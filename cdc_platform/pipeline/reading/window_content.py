"""Content of a window of raw records, in one look at few of their columns; needs no Spark.

What comes again was committed at the same moment at the source as when it came first. So the log is asked
from the earliest moment of a window on: nearly always that is a moment ago, however long events may repeat.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.stream.records import ModType

_COUNTED: Final = ("kind", "record_timestamp")
_OF_EVENTS: Final = ("mod_type", "event.source_timestamp", "event.fault")
_SLACK_MICROS: Final = 1_000_000
"""A newer connector may tell by the microsecond what an older one told by the millisecond."""


@dataclass(frozen=True)
class WindowContent:
    """Records of a window, and what tells which changes of the log some of them may equal.

    Args:
        records: how many there are, duplicates included.
        since_micros: earliest moment at the source of a change; None if no change states one.
        lacks_moments: whether some changes do not state it.
        has_snapshots: whether some are rows of snapshots: one that is read again has another moment.
        has_faults: whether some cannot be used and state no moment, so that they may have come at any time.
    """

    records: int = 0
    since_micros: int | None = None
    lacks_moments: bool = False
    has_snapshots: bool = False
    has_faults: bool = False

    def plus(self, other: "WindowContent") -> "WindowContent":
        """Return the content of both."""
        moments = [micros for micros in (self.since_micros, other.since_micros) if micros is not None]
        return WindowContent(
            self.records + other.records,
            min(moments, default=None),
            self.lacks_moments or other.lacks_moments,
            self.has_snapshots or other.has_snapshots,
            self.has_faults or other.has_faults,
        )

    @property
    def logged_before(self) -> str:
        """SQL of the changes of the log that records of the window may equal."""
        if self.has_faults:
            return "true"
        parts = []
        if self.since_micros is not None:
            since = to_datetime(max(0, self.since_micros - _SLACK_MICROS)).isoformat()
            parts.append(f"source_timestamp >= timestamp'{since}'")
        if self.lacks_moments:
            parts.append("source_timestamp IS NULL")
        if self.has_snapshots:
            parts.append(f"change_kind = '{ChangeKind.SNAPSHOT.value}'")
        return f"({' OR '.join(parts) or 'false'})"


def measure_content(raw: Table, records: str) -> WindowContent:
    """Return the content of the raw records that a filter selects."""
    is_of_events = "event" in raw.schema().as_arrow().names
    fields = (*_COUNTED, *(_OF_EVENTS if is_of_events else ()))
    content = WindowContent()
    for batch in raw.scan(row_filter=records, selected_fields=fields).to_arrow_batch_reader():
        content = content.plus(content_of(batch) if is_of_events else WindowContent(batch.num_rows))
    return content


def content_of(batch: pa.RecordBatch) -> WindowContent:
    """Return the content of some raw records of a source that hands out events."""
    moments, faults = (pc.struct_field(batch.column("event"), name) for name in ("source_timestamp", "fault"))
    first = pc.min(moments).as_py()
    is_fault, lacks_moment = pc.is_valid(faults), pc.is_null(moments)
    return WindowContent(
        batch.num_rows,
        None if first is None else from_datetime(first),
        _any(pc.and_not(lacks_moment, is_fault)),
        _any(pc.equal(batch.column("mod_type"), ModType.SNAPSHOT.value)),
        _any(pc.and_(lacks_moment, is_fault)),
    )


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())
