"""A change stream in memory, with the semantics of Spanner's, and a simulation of cycles over it."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc_platform.errors import PartitionBoundsInvalid
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, advance, begin, watermark_micros
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.model.stream.read_windows import ReadRequest, ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.model.stream.window_plans import plan_windows
from cdc_platform_tests.partition_tree import PartitionTree, Span
from cdc_platform_tests.support.history import (
    NULL_ROW,
    DataRecord,
    History,
    LogEntry,
    RawRow,
    data_records,
    expected_log,
    raw_row,
)


@dataclass(frozen=True)
class WindowFault:
    """Fate of a window: whether it is read, how far, and whether a restart repeats its records."""

    is_read: bool = True
    records_before_failure: int | None = None
    is_repeated: bool = False


@dataclass(frozen=True)
class CyclePlan:
    """A cycle: the source's clock, and the fates of its windows, used again and again in their order."""

    clock_micros: int
    max_window_s: float | None = None
    fates: tuple[WindowFault, ...] = (WindowFault(),)
    shuffle: int = 0
    """Decides on the order in which the rows of the cycle arrive."""


@dataclass(frozen=True)
class ReadSchedule:
    """Division of a history into partitions and cycles."""

    tree: PartitionTree
    cycles: tuple[CyclePlan, ...]


@dataclass(frozen=True)
class CycleBatch:
    """Result of a cycle's read: rows of RAW_CHANGE_RECORDS, and the lineage after it."""

    cycle: int
    rows: tuple[RawRow, ...]
    reports: tuple[WindowReport, ...]
    children: tuple[ChildAnnouncement, ...]
    lineage: Lineage

    @property
    def watermark_micros(self) -> int:
        """The watermark after the cycle; some partition of a fake stream is always unfinished."""
        watermark = watermark_micros(self.lineage)
        assert watermark is not None
        return watermark


class FakeChangeStream:
    """Answers windows as Spanner answers bounded queries, in the shape of the platform's reader."""

    def __init__(self, history: History, tree: PartitionTree) -> None:
        self.history = history
        self.tree = tree
        self.records = data_records(history, tree.locate)

    def log(self, at_micros: int | None = None) -> list[LogEntry]:
        """Return the change log that is right at a watermark."""
        return expected_log(self.history, self.tree.locate, at_micros)

    def read(
        self, planned: ReadWindow, cycle: int = 1, fate: WindowFault | None = None
    ) -> tuple[list[RawRow], WindowReport]:
        """Return the records of a window, the row that reports on it as the last, and that report.

        Raises:
            PartitionBoundsInvalid: The window does not lie in the life of its partition.
        """
        fate = fate or WindowFault()
        end_micros = self._end_micros(planned)
        ends_inside = end_micros is not None and end_micros <= planned.end_inclusive_micros
        rows = [raw_row(record, cycle) for record in self._records(planned)]
        if ends_inside and end_micros is not None:
            rows += self._child_rows(planned.token, end_micros, cycle)
        elif not rows:
            rows.append(_heartbeat(planned, cycle))
        failure = fate.records_before_failure
        if failure is not None and failure < len(rows):
            rows = rows[:failure]
            report = _interrupted(planned, rows)
        elif ends_inside and end_micros is not None:
            report = _report(planned, end_micros - 1, WindowOutcome.FINISHED)
        else:
            report = _report(planned, planned.end_inclusive_micros, WindowOutcome.COMPLETE)
        if fate.is_repeated:
            rows = [row for row in rows for _ in range(2)]
        return [*rows, _window_row(report, rows, cycle)], report

    def _end_micros(self, planned: ReadWindow) -> int | None:
        first = planned.start_exclusive_micros + 1
        start, end = self.tree.life(planned.token)
        if first < start or (end is not None and first > end):
            raise PartitionBoundsInvalid(f"{first} is invalid for the partition: {planned.token!r}")
        return end

    def _records(self, planned: ReadWindow) -> list[DataRecord]:
        inside = range(planned.start_exclusive_micros + 1, planned.end_inclusive_micros + 1)
        return [
            record
            for record in self.records
            if record.token == planned.token and record.transaction.commit_micros in inside
        ]

    def _child_rows(self, token: str, end_micros: int, cycle: int) -> list[RawRow]:
        """Return one record per child of the root, and one with all children of any other partition."""
        children = self.tree.children(token)
        records = [(child,) for child in children] if token == ROOT_TOKEN else [children]
        return [_child_row(token, end_micros, cycle, number, record) for number, record in enumerate(records)]


def raw_rows(history: History, schedule: ReadSchedule) -> list[CycleBatch]:
    """Return what the cycles of a slicing read, and then as many whole cycles as it takes to read the rest.

    Each batch holds the rows of one cycle of `raw_change_records` (columns of RAW_CHANGE_RECORDS with Python
    values; `raw_table` of `golden_streams` makes an Arrow table of them), in the order in which they arrive.
    Feed batch after batch through order, net changes and merge: after the batch with watermark `w`, the
    change log must equal `FakeChangeStream.log(w)` and the tables `tables_at(history, w)`. The watermark of
    the last batch is at or after `history.end_micros`. A cycle that has nothing to read gives no batch, as in
    the platform.
    """
    stream = FakeChangeStream(history, schedule.tree)
    lineage = begin(schedule.tree.start_micros)
    batches: list[CycleBatch] = []
    for plan in schedule.cycles:
        batches += _run_cycle(stream, lineage, plan)
        lineage = batches[-1].lineage if batches else lineage
    spans = schedule.tree.spans
    rest = CyclePlan(max(history.end_micros, *(span.start_micros for span in spans)) + 2)
    while (watermark_micros(lineage) or 0) < rest.clock_micros - 1:
        batches += _run_cycle(stream, lineage, rest)
        lineage = batches[-1].lineage
    return batches


def read_control(rows: Iterable[RawRow]) -> tuple[list[WindowReport], list[ChildAnnouncement]]:
    """Return the window reports and child announcements that rows of `raw_change_records` hold."""
    reports: list[WindowReport] = []
    children: list[ChildAnnouncement] = []
    for row in rows:
        if row["kind"] == RecordKind.READ_WINDOW:
            reports.append(_report_of(row))
        elif row["kind"] in (RecordKind.CHILD_PARTITIONS, RecordKind.PARTITION_START):
            start_micros = from_datetime(row["record_timestamp"])
            children += (
                ChildAnnouncement.of(
                    row["cycle"],
                    start_micros,
                    (child["token"], child["parent_partition_tokens"]),
                    announced_by=row["partition_token"],
                    continues_parents=row["kind"] == RecordKind.CHILD_PARTITIONS,
                )
                for child in row["child_partitions"]
            )
    return reports, children


def _run_cycle(stream: FakeChangeStream, lineage: Lineage, plan: CyclePlan) -> list[CycleBatch]:
    cycle = lineage.cycle + 1
    rows: list[RawRow] = []
    for number, planned in enumerate(
        plan_windows(lineage, ReadRequest(plan.clock_micros, plan.max_window_s))
    ):
        fate = plan.fates[number % len(plan.fates)]
        if fate.is_read:
            rows += stream.read(planned, cycle, fate)[0]
    if not rows:
        return []
    rows = [
        row
        for _, row in sorted(enumerate(rows), key=lambda item: zlib.crc32(b"%d-%d" % (plan.shuffle, item[0])))
    ]
    reports, children = read_control(rows)
    after = advance(lineage, cycle, reports, children)
    return [CycleBatch(cycle, tuple(rows), tuple(reports), tuple(children), after)]


def _report(
    planned: ReadWindow, end_micros: int, outcome: WindowOutcome, error: str | None = None
) -> WindowReport:
    return WindowReport(planned.token, planned.start_exclusive_micros, end_micros, outcome, error)


def _interrupted(planned: ReadWindow, rows: Sequence[RawRow]) -> WindowReport:
    """More records may have the timestamp of the last one, so only what lies before it is complete."""
    seen = [from_datetime(row["record_timestamp"]) - 1 for row in rows]
    end_micros = max(planned.start_exclusive_micros, *seen) if seen else planned.start_exclusive_micros
    return _report(planned, end_micros, WindowOutcome.INTERRUPTED, "SourceUnreachable: the connection broke")


def _child_row(token: str, end_micros: int, cycle: int, number: int, children: Sequence[Span]) -> RawRow:
    sequence = f"{number:08d}"
    return {
        **NULL_ROW,
        "cycle": cycle,
        "kind": RecordKind.CHILD_PARTITIONS.value,
        "partition_token": token,
        "record_timestamp": to_datetime(end_micros),
        "record_sequence": sequence,
        "record_order": record_order(sequence),
        "child_partitions": [
            {"token": child.token, "parent_partition_tokens": list(child.parents)} for child in children
        ],
    }


def _heartbeat(planned: ReadWindow, cycle: int) -> RawRow:
    return {
        **NULL_ROW,
        "cycle": cycle,
        "kind": RecordKind.HEARTBEAT.value,
        "partition_token": planned.token,
        "record_timestamp": to_datetime(planned.end_inclusive_micros),
    }


def _window_row(report: WindowReport, rows: Sequence[RawRow], cycle: int) -> RawRow:
    kinds = [row["kind"] for row in rows]
    return {
        **NULL_ROW,
        "cycle": cycle,
        "kind": RecordKind.READ_WINDOW.value,
        "partition_token": report.token,
        "record_timestamp": to_datetime(report.end_inclusive_micros),
        "read_window": {
            "start_exclusive": to_datetime(report.start_exclusive_micros),
            "end_inclusive": to_datetime(report.end_inclusive_micros),
            "outcome": report.outcome.value,
            "data_change_records": kinds.count(RecordKind.DATA_CHANGE),
            "heartbeat_records": kinds.count(RecordKind.HEARTBEAT),
            "child_partitions_records": kinds.count(RecordKind.CHILD_PARTITIONS),
            "error": report.error,
        },
    }


def _report_of(row: RawRow) -> WindowReport:
    fields = row["read_window"]
    return WindowReport(
        row["partition_token"],
        from_datetime(fields["start_exclusive"]),
        from_datetime(fields["end_inclusive"]),
        WindowOutcome(fields["outcome"]),
        fields["error"],
    )
