"""Cycles without a lake: the lineage follows from the rows that a read returned."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, advance
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport

if TYPE_CHECKING:
    from pyspark.sql import Row


def apply_cycle(lineage: Lineage, rows: "Iterable[Row]") -> Lineage:
    """Return the lineage after a cycle that read these rows."""
    rows = list(rows)
    cycle = lineage.cycle + 1
    reports = [_report(row) for row in rows if row.kind == "read_window"]
    children = [
        ChildAnnouncement(
            cycle, _micros(row.record_timestamp), child.token, tuple(child.parent_partition_tokens)
        )
        for row in rows
        if row.kind == "child_partitions"
        for child in row.child_partitions
    ]
    return advance(lineage, cycle, reports, children)


def _report(row: "Row") -> WindowReport:
    about = row.read_window
    return WindowReport(
        row.partition_token,
        _micros(about.start_exclusive),
        _micros(about.end_inclusive),
        WindowOutcome(about.outcome),
        about.error,
    )


def _micros(moment: datetime) -> int:
    # Spark's rows have naive datetimes in the zone of this process.
    return from_datetime(moment.astimezone(UTC))
