"""The status of a pipeline, from the lake alone: no Spark, and the source may be down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits.commits import ancestors_of, count_rows, fact, head, read_mark
from cdc_platform.lake.state.control import load_lineage, load_stuck
from cdc_platform.lake.state.copies import load_copy_progress, load_plans
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.lake.state.last_results import LastResult, load_results
from cdc_platform.lake.state.lost_tables import require_published
from cdc_platform.lake.state.quarantine import count_quarantined_records
from cdc_platform.lake.state.read_progress import ReplayProgress, left_since, load_poll, load_replay_progress
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.base.stored_names import CYCLE, RAW
from cdc_platform.model.base.stored_texts import MISUNDERSTOOD
from cdc_platform.model.base.timestamps import clock_micros, plain_fields, to_rfc3339
from cdc_platform.model.schema.table_options import PLAIN, history_name
from cdc_platform.model.stream.lineage import PartitionState, watermark_micros
from cdc_platform.model.stream.watermark_holders import StuckPartition
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import UnreadFile, list_unread

Part = TypeVar("Part")
UNREADABLE: Final = (LakeError, NoSuchTableError, *MISUNDERSTOOD)
"""Errors of a damaged part of the lake."""


@dataclass(frozen=True)
class TableStatus:
    """Rows and snapshot of one table for current readers, and the time when a cycle last changed it."""

    rows: int | None
    snapshot_id: int | None
    changed_micros: int | None = None


@dataclass(frozen=True)
class CopyStatus:
    """A running initial copy: the number of its starts, its chunks, and the rate of its last batches."""

    number: int
    position_micros: int
    chunks: int
    copied_chunks: int
    copied_rows: int
    chunks_per_s: float | None = field(default=None, compare=False)

    @property
    def rows_per_s(self) -> float | None:
        """Rows per second; None before the first batch ends."""
        if self.chunks_per_s is None or not self.copied_chunks:
            return None
        return self.copied_rows / self.copied_chunks * self.chunks_per_s

    @property
    def left_s(self) -> float | None:
        """Seconds until the last chunk; None before the first batch ends."""
        return (self.chunks - self.copied_chunks) / self.chunks_per_s if self.chunks_per_s else None


@dataclass(frozen=True)
class Status:
    """Current state of a pipeline.

    ``watermark_micros`` is None before the first cycle, ``lag_s`` before the first cut.
    ``lag_s`` compares the position of the newest cut with this machine's clock. For event sources it is no
    lag but the silence, ``is_silence``: the lake cannot know what they have not delivered yet. If the cycle
    of the cut has left data, it is the age of the oldest of that, which came at ``left_since_micros``.
    ``unreadable`` has the error of each damaged part of the lake, whose values are None or empty.
    """

    pipeline: str
    cycle: int
    watermark_micros: int | None
    lag_s: float | None
    delivers_events: bool
    live_partitions: tuple[str, ...]
    waiting_partitions: tuple[str, ...]
    finished_partitions: int
    tables: Mapping[str, TableStatus]
    cut: Cut | None
    quarantined: int | None
    findings: tuple[str, ...]
    """Reasons why tables differ from the source by design."""
    copies: Mapping[str, CopyStatus] = field(default_factory=dict)
    stuck_partitions: tuple[StuckPartition, ...] = ()
    """Partitions that hold the watermark because the source sends nothing of them."""
    unread_files: tuple[UnreadFile, ...] = ()
    """Files and folders that could not be read; they block nothing else."""
    polled_micros: int | None = None
    """When a cycle or the sensor last polled an event source; rounded to about a minute."""
    left_since_micros: int | None = None
    replay: ReplayProgress | None = None
    """A replay from quarantine that is not over."""
    checks: tuple[LastResult, ...] = ()
    """Last results of the checks."""
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_begun(self) -> bool:
        """Whether a cycle has read anything."""
        return self.cycle > 0

    @property
    def is_silence(self) -> bool:
        """Whether the lag is only the time since the source last had something to read."""
        return self.delivers_events and self.left_since_micros is None

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain values; times are RFC 3339 texts."""
        return {
            **plain_fields(self, "delivers_events"),
            "lag_s": None if self.is_silence else self.lag_s,
            "silence_s": self.lag_s if self.is_silence else None,
            "stuck_partitions": [
                {"partition": item.key, **plain_fields(item, "key")} for item in self.stuck_partitions
            ],
            "tables": {name: plain_fields(table) for name, table in self.tables.items()},
            "cut": self.cut.cut if self.cut is not None else None,
            "cut_position": to_rfc3339(self.cut.position_micros) if self.cut is not None else None,
            "replay": {**plain_fields(self.replay), "left_s": self.replay.left_s} if self.replay else None,
            "unread_files": [plain_fields(file) for file in self.unread_files],
            "checks": [
                {**plain_fields(check, "at_s"), "ran": to_rfc3339(round(check.at_s * 1e6))}
                for check in self.checks
            ],
            "copies": {
                name: {
                    **plain_fields(copy, "chunks_per_s"),
                    "rows_per_s": copy.rows_per_s,
                    "left_s": copy.left_s,
                }
                for name, copy in self.copies.items()
            },
        }


class _Parts(dict[str, str]):
    """Reads of the parts of a status: the error of a damaged one is kept, and hides no other part."""

    def read(self, name: str, read: Callable[[], Part], placeholder: Part) -> Part:
        """Return a part, or its substitute if it is damaged."""
        try:
            return read()
        except UNREADABLE as error:
            if isinstance(error, LakeError) and error.retryable:
                raise
            self[name] = str(error) if isinstance(error, LakeError) else f"{type(error).__name__}: {error}"
            return placeholder


def read_status(pipeline: Pipeline) -> Status:
    """Return the current state of the pipeline, without what is damaged.

    Raises:
        LakeDamaged: the raw records cannot be read.
    """
    lake, is_events, parts = pipeline.lake, pipeline.capabilities.delivers_events, _Parts()
    raw = lake.system_table(RAW)
    mark = read_mark(raw)
    lineage = parts.read("partitions", lambda: load_lineage(lake), None)
    partitions = list(lineage.partitions.values()) if lineage is not None else []
    cut = parts.read("cut", lambda: newest_cut(lake), None)
    left_since_micros = parts.read("backlog", lambda: left_since(lake, cut) if cut else None, None)
    polled_micros = parts.read("polls", lambda: load_poll(lake), 0)
    return Status(
        pipeline=pipeline.name,
        cycle=mark.cycle,
        # The lineage exists before the first cycle; its start is not a watermark yet.
        watermark_micros=watermark_micros(lineage) if lineage is not None and lineage.cycle else None,
        lag_s=cut.lag_s(clock_micros(), left_since_micros) if cut is not None else None,
        delivers_events=is_events,
        live_partitions=tuple(partition.key for partition in partitions if partition.is_live),
        waiting_partitions=tuple(
            partition.key for partition in partitions if partition.state is PartitionState.CREATED
        ),
        finished_partitions=sum(partition.is_finished for partition in partitions),
        tables=_tables(pipeline, cut, parts),
        cut=cut,
        quarantined=parts.read("quarantine", lambda: count_quarantined_records(lake), None),
        findings=parts.read("notes", lambda: pipeline.findings(pipeline.schema_history), ()),
        # Without the cut, copies that have ended would look as if they ran.
        copies=parts.read("copies", lambda: _copies(pipeline, cut), {}) if "cut" not in parts else {},
        stuck_partitions=parts.read("stuck partitions", lambda: load_stuck(lake), ()),
        unread_files=parts.read("unread files", lambda: list_unread(pipeline), ()),
        left_since_micros=left_since_micros,
        replay=parts.read("replay", lambda: load_replay_progress(lake), None),
        checks=parts.read("checks", lambda: load_results(lake), ()),
        polled_micros=max(polled_micros, _changed_micros(raw) or 0) or None if is_events else None,
        unreadable=parts,
    )


def _tables(pipeline: Pipeline, cut: Cut | None, parts: _Parts) -> dict[str, TableStatus]:
    return {
        name: parts.read(
            f"table {name}", partial(_table_status, pipeline, name, table, cut), TableStatus(None, None)
        )
        for name, table in _table_names(pipeline, cut).items()
    }


def _copies(pipeline: Pipeline, cut: Cut | None) -> dict[str, CopyStatus]:
    copies = {}
    dropped_tables = {name for name, columns in pipeline.schema_history.tables.items() if columns.is_dropped}
    plans, chosen_names = load_plans(pipeline.lake), pipeline.settings.tables
    for name, plan in plans.items():
        if chosen_names is not None and name not in chosen_names:
            continue
        if name not in dropped_tables and (cut is None or name not in cut.tables):
            progress = load_copy_progress(pipeline.lake.table(name), plan)
            copies[name] = CopyStatus(
                plan.number,
                plan.position_micros,
                len(plan.chunks),
                len(progress.done),
                progress.rows,
                progress.chunks_per_s,
            )
    return copies


def _table_names(pipeline: Pipeline, cut: Cut | None) -> dict[str, str]:
    """Return the names in the lake of its tables, including those of a cut that it has lost, and in the cut.

    A table that the user has left out and dropped is not lost. The source, which may be down, is not asked.
    """
    names, options = pipeline.settings.tables, pipeline.settings.table_options
    sources = pipeline.schema_history.tables if names is None else names
    chosen_names = {*sources, *(history_name(name) for name in sources if options.get(name, PLAIN).history)}
    of_cut = {lake_table_name(name): name for name in (cut.tables if cut is not None else ())}
    in_cut = {name for name, table in of_cut.items() if table in chosen_names}
    return {name: of_cut.get(name, name) for name in sorted({*pipeline.lake.table_names(), *in_cut})}


def _table_status(pipeline: Pipeline, name: str, name_in_cut: str, cut: Cut | None) -> TableStatus:
    table = pipeline.lake.table(name)
    require_published(pipeline.lake, table, name_in_cut, cut)
    snapshot = head(table) if table is not None else None
    if table is None or snapshot is None:
        return TableStatus(count_rows(snapshot), None)
    return TableStatus(count_rows(snapshot), snapshot.snapshot_id, _changed_micros(table))


def _changed_micros(table: Table) -> int | None:
    """Return when a cycle last committed to a table; compaction also makes snapshots, without changes."""
    cycles = (other for other in ancestors_of(table, head(table)) if fact(other, CYCLE) is not None)
    newest = next(cycles, None)
    return newest.timestamp_ms * 1000 if newest is not None else None
