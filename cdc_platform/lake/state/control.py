"""The control rows of the raw table, and the lineage derived from them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.retries import commit_again
from cdc_platform.lake.commits.commits import Version, read_mark
from cdc_platform.lake.commits.snapshots import replace_in_one
from cdc_platform.model.base.schemas import PARTITION_LINEAGE, TIMESTAMP
from cdc_platform.model.base.stored_names import CYCLE, LINEAGE, RAW
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, Partition, PartitionState
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.model.stream.watermark_holders import StuckPartition, find_stuck

CONTROL_COLUMNS = ("cycle", "kind", "partition_token", "record_timestamp", "child_partitions", "read_window")
_ANNOUNCEMENTS: Final = (RecordKind.CHILD_PARTITIONS.value, RecordKind.PARTITION_START.value)
CONTROL_KINDS = (*_ANNOUNCEMENTS, RecordKind.READ_WINDOW.value)
_PLAIN: Final = ("created_cycle", "running_cycle", "finished_cycle", "continues_parents")
"""Columns of the lineage with the names and the order of a partition's fields."""
_STATES: Final = {state.value: state for state in PartitionState}


@dataclass(frozen=True)
class ControlRows:
    """Reports of one cycle: its windows and the children that were announced."""

    windows: tuple[WindowReport, ...]
    children: tuple[ChildAnnouncement, ...]
    records: Mapping[RecordKind, int]


def read_control(lake: Lake, cycle: int) -> ControlRows:
    """Return the control rows of one cycle."""
    version = Version.newest(lake.system_table(RAW))
    return _read_control(version, cycle) if version is not None else ControlRows((), (), {})


# Reading and the lineage ask for the same cycle.
@lru_cache(maxsize=4)
@understanding(RAW)
def _read_control(version: Version, cycle: int) -> ControlRows:
    condition = f"cycle = {cycle} and kind in {CONTROL_KINDS}"
    rows = version.table.scan(condition, CONTROL_COLUMNS).to_arrow().to_pylist()
    reports = [row for row in rows if row["kind"] == RecordKind.READ_WINDOW]
    announcements = [row for row in rows if row["kind"] in _ANNOUNCEMENTS]
    return ControlRows(
        windows=tuple(_as_report(row) for row in reports),
        children=tuple(child for row in announcements for child in _as_children(row)),
        records={
            RecordKind.DATA_CHANGE: _total(reports, "data_change_records"),
            RecordKind.HEARTBEAT: _total(reports, "heartbeat_records"),
            RecordKind.CHILD_PARTITIONS: _total(reports, "child_partitions_records"),
        },
    )


def _as_report(row: Mapping[str, Any]) -> WindowReport:
    return WindowReport(
        token=row["partition_token"],
        start_exclusive_micros=from_datetime(row["read_window"]["start_exclusive"]),
        end_inclusive_micros=from_datetime(row["read_window"]["end_inclusive"]),
        outcome=WindowOutcome(row["read_window"]["outcome"]),
        error=row["read_window"]["error"],
    )


def _as_children(row: Mapping[str, Any]) -> list[ChildAnnouncement]:
    return [
        ChildAnnouncement.of(
            row["cycle"],
            from_datetime(row["record_timestamp"]),
            (child["token"], child["parent_partition_tokens"]),
            announced_by=row["partition_token"],
            continues_parents=row["kind"] == RecordKind.CHILD_PARTITIONS,
        )
        for child in row["child_partitions"]
    ]


def _total(reports: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(row["read_window"][name] or 0 for row in reports)


def load_lineage(lake: Lake) -> Lineage | None:
    """Return the last derived lineage, None before the first time."""
    version = Version.newest(lake.system_table(LINEAGE))
    return _read_lineage(version) if version is not None else None


# A cycle asks for the lineage half a dozen times; the newest of a few pipelines are kept.
@lru_cache(maxsize=4)
@understanding(LINEAGE)
def _read_lineage(version: Version) -> Lineage:
    rows = version.table.scan(snapshot_id=version.snapshot_id).to_arrow()
    return Lineage(_as_partitions(rows), read_mark(version.table).cycle)


def load_stuck(lake: Lake) -> tuple[StuckPartition, ...]:
    """Return the partitions that the newest cycle could not read to its end."""
    lineage, mark = load_lineage(lake), read_mark(lake.system_table(RAW))
    if lineage is None or mark.position_micros is None:
        return ()
    return find_stuck(lineage, read_control(lake, mark.cycle).windows, mark.position_micros)


def save_lineage(lake: Lake, lineage: Lineage) -> Lineage:
    """Replace the stored lineage, and return the stored one.

    It is another one if another process derived the same cycle or a newer one meanwhile: of two first starts,
    which may begin at different times, only one counts.

    Raises:
        CommitConflict: the catalog rejected each attempt.
    """
    rows = _as_table(lineage.partitions.values())
    properties = {CYCLE: str(lineage.cycle)}

    def save() -> Lineage:
        table = lake.system_table(LINEAGE)
        if table.current_snapshot() is not None and read_mark(table).cycle >= lineage.cycle:
            return load_lineage(lake) or lineage
        with table.transaction() as transaction:
            replace_in_one(transaction, table, [rows], properties)
        return lineage

    return commit_again(save, CommitConflict.of(LINEAGE))


# Weeks of splits and merges make a hundred thousand partitions: reading them by columns takes a tenth of the
# time of reading row by row.


def _as_partitions(rows: pa.Table) -> dict[str, Partition]:
    tokens = rows["partition_token"].to_pylist()
    columns = (
        tokens,
        map(tuple, rows["parent_tokens"].to_pylist()),
        map(_STATES.__getitem__, rows["state"].to_pylist()),
        _micros(rows["start_timestamp"]),
        _micros(rows["position"]),
        # The first lakes have no `continues_parents`.
        *(rows[name].to_pylist() for name in _PLAIN if name in rows.column_names),
    )
    return dict(zip(tokens, map(Partition, *columns), strict=True))


def _as_table(partitions: Collection[Partition]) -> pa.Table:
    columns = {
        "partition_token": [partition.token for partition in partitions],
        "partition_key": [partition.key for partition in partitions],
        "parent_tokens": [partition.parent_tokens for partition in partitions],
        "state": [partition.state.value for partition in partitions],
        "start_timestamp": [partition.start_micros for partition in partitions],
        "position": [partition.position_micros for partition in partitions],
        **{name: [getattr(partition, name) for partition in partitions] for name in _PLAIN},
    }
    return pa.table(columns, PARTITION_LINEAGE)


def _micros(moments: pa.ChunkedArray) -> list[int]:
    micros: list[int] = moments.cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    return micros
