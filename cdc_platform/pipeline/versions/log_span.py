"""Spans of the log that a table lacks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import CommitConflict, LakeDamaged
from cdc_platform.lake.commits.commits import (
    BYTES,
    LATE,
    STATS,
    ancestors_of,
    head,
    number_of,
    position_of,
    read_fact,
    read_mark,
)
from cdc_platform.lake.state.cuts import Cut, cut_number, newest_cut
from cdc_platform.lake.state.quarantine import has_replays
from cdc_platform.model.base.stored_names import CUT, CYCLE, LOG
from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.pipeline.opened.pipeline import Pipeline

UNKNOWN_CHANGES: Final = 2**62


@dataclass(frozen=True)
class LogSpan:
    """Cycles `(after_exclusive, until_inclusive]` of the log, and their changes of one table.

    If the log no longer has its statistics, ``changes`` is `UNKNOWN_CHANGES`, and ``has_partial_updates`` and
    ``has_truncates`` are True. Changes up to ``after_micros`` are left out; ``changes`` may count them.
    ``is_late`` means that the span has replayed changes that belong before those of former cycles: their
    order is `ordering_key` instead of `ordinal`. ``size_bytes`` is the memory of the changes of all tables in
    these cycles, None if a cycle does not state it.
    """

    after_exclusive: int
    until_inclusive: int
    changes: int
    has_partial_updates: bool
    after_micros: int | None = None
    has_truncates: bool = False
    is_late: bool = False
    size_bytes: int | None = None


def applied_cycle(pipeline: Pipeline, table: Table, name: str, cut: Cut | None) -> int:
    """Return the cycle of the log up to which the published version of a table is complete.

    The table's own mark counts if the newest cut does not name it because it was left out for a while.

    Raises:
        CommitConflict: the table is newer than the cut, so it has some of the changes after the cut.
        LakeDamaged: it is newer than every cut.
    """
    merged_cycle = read_mark(table).cycle
    if cut is None or name not in cut.tables:
        return merged_cycle
    if merged_cycle > cut.cycle:
        # A cut is there before a table moves to it.
        if cut_number(newest_cut(pipeline.lake)) <= cut.cut:
            raise LakeDamaged(
                f"table `{name}`",
                f"it has changes up to cycle {merged_cycle}, the newest cut ({cut.cut}) up to {cut.cycle}",
                remedy=f"Probably `{pipeline.lake.system_namespace}.{CUT}` alone was restored from an older "
                "copy: restore its newest version, or restore the catalog and all tables of the pipeline "
                "from the same copy. The next run continues from there.",
            )
        raise CommitConflict(
            f"Another run has published table `{name}` since this run read cut {cut.cut}; the next cycle "
            "continues from there."
        )
    return cut.cycle


def pending_span(pipeline: Pipeline, table: str, after_exclusive: int) -> LogSpan:
    """Return the span of the log after a cycle, from the summaries of its snapshots, without reading data."""
    log = pipeline.lake.system_table(LOG)
    until = read_mark(log).cycle
    if until <= after_exclusive:
        return LogSpan(after_exclusive, until, 0, has_partial_updates=False, size_bytes=0)
    stats = stats_after(log, table, after_exclusive)
    if stats is None:
        events = pipeline.capabilities.delivers_events
        is_late = pipeline.capabilities.comes_in_order and has_replays(pipeline.lake, table)
        return LogSpan(
            after_exclusive,
            until,
            UNKNOWN_CHANGES,
            has_partial_updates=True,
            has_truncates=events,
            is_late=is_late,
        )
    sizes = [cycle.size_bytes for cycle in stats]
    known_sizes = [size for size in sizes if size is not None]
    return LogSpan(
        after_exclusive,
        until,
        changes=sum(cycle.changes for cycle in stats),
        has_partial_updates=any(cycle.partial_updates for cycle in stats),
        has_truncates=any(cycle.truncates for cycle in stats),
        is_late=any(cycle.is_late for cycle in stats),
        size_bytes=sum(known_sizes) if len(known_sizes) == len(sizes) else None,
    )


def span_after(pipeline: Pipeline, table: str, position_micros: int) -> LogSpan:
    """Return the span of the log with exactly the changes of a table after a position."""
    log = pipeline.lake.system_table(LOG)
    after = 0
    for snapshot in ancestors_of(log, head(log)):
        cycle, position = number_of(snapshot, CYCLE), position_of(snapshot)
        if cycle is not None and position is not None and position <= position_micros:
            # The changes of a cycle lie at or before its position.
            after = cycle
            break
    return replace(pending_span(pipeline, table, after), after_micros=position_micros)


@dataclass(frozen=True)
class CycleStats:
    """Statistics of one table's changes in a snapshot of the log."""

    is_late: bool
    size_bytes: int | None = None
    changes: int = 0
    partial_updates: int = 0
    truncates: int = 0


_stats: Final = partial(parse_stored, shape=dict[str, tuple[int, int, int]])
_names: Final = partial(parse_stored, shape=list[str])


def changes_by_table(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the number of changes of each source table in a snapshot of the log, from its summary.

    Raises:
        LakeDamaged: its summary has other statistics than the platform writes.
    """
    stats = read_fact(snapshot, STATS, _stats) or {}
    return {table: changes for table, (changes, _, _) in stats.items()}


def stats_after(log: Table, table: str, after_exclusive: int) -> list[CycleStats] | None:
    """Return the statistics of each later cycle, None if they went with expired snapshots.

    Raises:
        LakeDamaged: a summary of the log has other statistics than the platform writes.
    """
    snapshots = _snapshots_after(log, after_exclusive)
    if snapshots is None:
        return None
    all_stats: list[CycleStats] = []
    for snapshot in snapshots:
        stats = read_fact(snapshot, STATS, _stats)
        if stats is not None:
            late_tables = read_fact(snapshot, LATE, _names) or ()
            size_bytes = number_of(snapshot, BYTES)
            all_stats.append(CycleStats(table in late_tables, size_bytes, *stats.get(table, ())))
    return all_stats


def tables_changed_after(log: Table, after_exclusive: int) -> frozenset[str] | None:
    """Return the source tables with changes in later cycles, None if expired snapshots had some.

    Raises:
        LakeDamaged: a summary of the log has other statistics than the platform writes.
    """
    snapshots = _snapshots_after(log, after_exclusive)
    if snapshots is None:
        return None
    return frozenset(table for snapshot in snapshots for table in changes_by_table(snapshot))


def _snapshots_after(log: Table, after_exclusive: int) -> list[Snapshot] | None:
    """Return the snapshots of later cycles, newest first; None if some have expired."""
    snapshots: list[Snapshot] = []
    for snapshot in ancestors_of(log, head(log)):
        cycle = number_of(snapshot, CYCLE)
        if cycle is not None and cycle <= after_exclusive:
            return snapshots
        snapshots.append(snapshot)
        if snapshot.parent_snapshot_id is None:
            return snapshots
    return None
