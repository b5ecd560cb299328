"""Content of a window of raw records, from a single scan of few columns; needs no Spark.

A repeated event states the same source time as before, if it states one. So the log is read from the earliest
source time of a window on, which is nearly always recent, even if events may repeat for a long time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from cdc_platform.lake.commits.commits import Version
from cdc_platform.lake.state.repeated_texts import read_repeated_texts
from cdc_platform.model.base.timestamps import FIRST_MICROS, from_datetime, to_datetime
from cdc_platform.model.stream.records import ChangeKind, ModType

SHAPE: Final = ("table_name", "mod_type", "value_capture_type", "column_types")
ShapeKey = tuple[str | None, str | None, str | None, str | None]
TypedTable = tuple[str, str]
"""A table, and the column types of its records."""
Key = TypeVar("Key")
_SELECTED: Final = ("kind", "record_timestamp")
_OF_EVENTS: Final = ("record_order", "event.source_timestamp", "event.fault")
_OF_SNAPSHOTS: Final = frozenset({ModType.SNAPSHOT.value, ModType.TRUNCATE.value})
_SLACK_MICROS: Final = 1_000_000
"""A newer connector may state microseconds for an event for which an older one stated milliseconds."""


@dataclass(frozen=True)
class WindowContent:
    """Records of a window, with the facts that limit the search for their duplicates in the log.

    Args:
        records: number of records, including duplicates.
        shapes: the shapes of the records, each with the ordering key of its first event; empty for records
            of a change stream.
        since_micros: earliest source time of a change; None if no change states one.
        lacks_moments: whether some changes, usable or not, do not state a source time.
        has_faults: whether some events cannot be used.
    """

    records: int = 0
    shapes: Mapping[ShapeKey, str] = field(default_factory=dict)
    since_micros: int | None = None
    lacks_moments: bool = False
    has_faults: bool = False

    def plus(self, other: "WindowContent") -> "WindowContent":
        """Return the content of both."""
        moments = [micros for micros in (self.since_micros, other.since_micros) if micros is not None]
        return WindowContent(
            self.records + other.records,
            _earliest([*self.shapes.items(), *other.shapes.items()]),
            min(moments, default=None),
            self.lacks_moments or other.lacks_moments,
            self.has_faults or other.has_faults,
        )

    @property
    def tables(self) -> frozenset[str]:
        """The source tables that the records change."""
        return frozenset(table for table, *_ in self.shapes if table is not None)

    def typed_tables(self, *, skips_deletes: bool = False) -> dict[TypedTable, str]:
        """Return the tables with the column types of their records, each with the first ordering key."""
        return _earliest(
            ((table, text), order)
            for (table, kind, _, text), order in self.shapes.items()
            if table is not None and text is not None
            if not (skips_deletes and kind == ModType.DELETE.value)
        )

    @property
    def earlier_changes_sql(self) -> str:
        """SQL of the changes of the log that records of the window may equal."""
        if self.lacks_moments:
            return "true"
        # A connector may state the time now although it did not when the event first came.
        parts = ["source_timestamp IS NULL"]
        if self.since_micros is not None:
            since = to_datetime(max(FIRST_MICROS, self.since_micros - _SLACK_MICROS)).isoformat()
            parts.append(f"source_timestamp >= timestamp'{since}'")
        # Rows of snapshots, and truncates before them, have another time when they are read again.
        if any(kind in _OF_SNAPSHOTS for _, kind, *_ in self.shapes):
            parts.append(f"change_kind IN ('{ChangeKind.SNAPSHOT.value}', '{ChangeKind.TRUNCATE.value}')")
        return f"({' OR '.join(parts)})"


def _earliest(orders: Iterable[tuple[Key, str]]) -> dict[Key, str]:
    first: dict[Key, str] = {}
    for key, order in orders:
        first[key] = min(order, first.get(key, order))
    return first


def measure_content(raw: Table, records: str) -> WindowContent:
    """Return the content of the raw records that a filter selects."""
    version = Version.newest(raw)
    return _measure(version, records) if version is not None else WindowContent()


# Ordering, completion, the history of the schema and the checks ask for the same window.
@lru_cache(maxsize=4)
def _measure(version: Version, records: str) -> WindowContent:
    is_of_events = "event" in version.table.schema().as_arrow().names
    fields = (*_SELECTED, *(_OF_EVENTS if is_of_events else ()))
    content = WindowContent()
    for batch in read_repeated_texts(version.table, records, SHAPE, *fields):
        content = content.plus(content_of(batch))
    return content


def content_of(batch: pa.Table | pa.RecordBatch) -> WindowContent:
    """Return the content of some raw records."""
    is_of_events = "event" in batch.schema.names
    orders = ["record_order"] if is_of_events else []
    columns = pa.table({name: batch.column(name) for name in (*SHAPE, *orders)})
    rows = columns.group_by(list(SHAPE)).aggregate([(name, "min") for name in orders])
    first_orders = rows["record_order_min"].to_pylist() if is_of_events else [None] * rows.num_rows
    shapes = {key: order or "" for key, order in zip(keys_of(rows), first_orders, strict=True)}
    if not is_of_events:
        return WindowContent(batch.num_rows, shapes)
    moments = pc.struct_field(batch.column("event"), "source_timestamp")
    first = pc.min(moments).as_py()
    return WindowContent(
        batch.num_rows,
        shapes,
        None if first is None else from_datetime(first),
        bool(moments.null_count),
        pc.struct_field(batch.column("event"), "fault").null_count < batch.num_rows,
    )


def keys_of(rows: pa.Table) -> Iterator[ShapeKey]:
    """Return the shape of each row."""
    return zip(*(rows[name].to_pylist() for name in SHAPE), strict=True)
