"""Commits of ordered changes to the log, with quarantined records and deletion markers."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.errors import LakeError, TransactionIncomplete
from cdc_platform.lake.commits.commits import (
    AFTER,
    LATE,
    NEXT_ORDINAL,
    POSITION,
    STATS,
    TAKEN,
    Mark,
    ancestors_of,
    bytes_since,
    head,
    number_of,
)
from cdc_platform.lake.commits.writes import CycleStep, append_cycle, commit_cycle, replace_cycle
from cdc_platform.model.base.stored_names import CYCLE, DELETION_MARKERS, LOG, QUARANTINE
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.strategy import OrderingStrategy, Window
from cdc_platform.pipeline.reading.local_read import MAX_BYTES
from cdc_platform.spark.frames.table_frames import (
    cache_frame,
    local_frame,
    read_current,
    read_version,
    with_columns_of,
)
from cdc_platform.spark.log.order import LogStats, OrderedChanges, sound_changes, unsound_records
from cdc_platform.spark.log.ordered_rows import deletion_marker_rows, sound_rows
from cdc_platform.spark.session.session_settings import PLANNED_ONCE, changed_settings
from cdc_platform.spark.tables.deletion_markers import deletion_markers


def commit_nothing(window: Window) -> LogStats:
    """Advance the watermark without Spark, in a cycle without changes."""
    stats = LogStats({}, 0, 0, window.mark.next_ordinal, None)
    no_rows = window.log.schema().as_arrow().empty_table()
    append_cycle(no_rows, window.log, window.step, _properties(window, stats, ()))
    return stats


def commit_changes(strategy: OrderingStrategy, in_order: OrderedChanges, window: Window) -> LogStats:
    """Commit the changes of a window, in this process if it is small, else in Spark's tasks."""
    stats = _commit_locally(strategy, in_order.frame, window) if _fits_locally(window) else None
    return _commit_by_tasks(strategy, in_order, window) if stats is None else stats


def _fits_locally(window: Window) -> bool:
    """Return whether the records of a window are few enough for this process."""
    if window.late:
        return False
    record_bytes = bytes_since(window.raw, window.mark.position_micros)
    return record_bytes is not None and record_bytes <= MAX_BYTES


def _commit_by_tasks(strategy: OrderingStrategy, in_order: OrderedChanges, window: Window) -> LogStats:
    """Complete, write and commit any number of changes in Spark's tasks."""
    lake, step = strategy.pipeline.lake, window.step
    with ExitStack() as cache:
        frame, counts = in_order.frame, in_order.stats
        if counts is None:
            frame, counts = strategy.finalise(cache_frame(cache, frame), window, cache)
        else:
            # The only exchange is that into ranges.
            cache.enter_context(changed_settings(frame.sparkSession, PLANNED_ONCE))
        stats = _checked(counts, window.mark)
        if stats.quarantined:
            unsound = unsound_records(frame, window.cycle)
            commit_cycle(unsound, lake.spark_system_table(QUARANTINE), window.quarantine, step, {})
        if window.markers is not None:
            markers = deletion_markers(frame, window.cycle)
            commit_cycle(markers, lake.spark_system_table(DELETION_MARKERS), window.markers, step, {})
        changes = sound_changes(frame, window.cycle, [field.name for field in window.log.schema().fields])
        properties = _properties(window, stats, strategy.late_tables(window, stats))
        commit_cycle(changes, lake.spark_system_table(LOG), window.log, step, properties)
    return stats


def _commit_locally(strategy: OrderingStrategy, in_order: DataFrame, window: Window) -> LogStats | None:
    """Commit a small batch of ordered changes without a writing Spark task and without a cached frame.

    None if it becomes large once it is completed; nothing was committed.
    """
    rows_with_counts = strategy.finalise_few(in_order.toArrow(), window)
    if rows_with_counts is None:
        return None
    rows, counts = rows_with_counts
    stats = _checked(counts, window.mark)
    _set_aside(in_order.sparkSession, rows, window, stats)
    changes = sound_rows(rows, window.cycle, window.log.schema().as_arrow())
    properties = _properties(window, stats, strategy.late_tables(window, stats))
    append_cycle(changes, window.log, window.step, properties)
    return stats


def _set_aside(spark: SparkSession, rows: pa.Table, window: Window, stats: LogStats) -> None:
    """Write quarantined records and deletion markers, before the log."""
    if stats.quarantined:
        unsound = unsound_records(local_frame(spark, rows), window.cycle).toArrow()
        replace_cycle(unsound, window.quarantine, window.step)
    if window.markers is not None:
        replace_cycle(deletion_marker_rows(rows, window.cycle), window.markers, window.step)


def restore_replaced(pipeline: Pipeline, spark: SparkSession, tables: Sequence[Table], cycle: int) -> bool:
    """Restore rows up to the log's newest cycle that a run planned before it has replaced; return if any.

    Such a run cannot commit to the log, but it writes quarantined records and deletion markers first.
    The versions of these tables must have been loaded before the log.

    Raises:
        CommitConflict: another run has written to the same table.
        LakeError: the replaced rows are gone.
    """
    replacements = [(table, *step) for table in tables if (step := _find_replacement(table, cycle))]
    for table, before_id, planned_after in replacements:
        if table.metadata.snapshot_by_id(before_id) is None:
            raise LakeError(
                f"Snapshot {before_id} of `{'.'.join(table.name())}` is gone, with rows that another run "
                "has replaced. Restore the catalog and all tables of the pipeline from one backup."
            )
        target = pipeline.lake.spark_system_table(table.name()[-1])
        rows = with_columns_of(read_version(spark, target, before_id), read_current(spark, target).schema)
        kept_rows = rows.where(f"cycle > {planned_after} AND cycle <= {cycle}")
        commit_cycle(kept_rows, target, table, CycleStep(planned_after, cycle), {})
    return bool(replacements)


def _find_replacement(table: Table, cycle: int) -> tuple[int, int] | None:
    """Return the snapshot before such commits, and the first cycle after which one was planned."""
    step: tuple[int, int] | None = None
    for snapshot in ancestors_of(table, head(table)):
        snapshot_cycle, base_cycle = number_of(snapshot, CYCLE), number_of(snapshot, AFTER)
        if snapshot_cycle is not None and snapshot_cycle <= cycle:
            break
        if base_cycle is not None and base_cycle < cycle and snapshot.parent_snapshot_id is not None:
            step = (snapshot.parent_snapshot_id, min(base_cycle, step[1] if step else base_cycle))
    return step


def _checked(stats: LogStats, mark: Mark) -> LogStats:
    """Return the counts of a window; raise if a transaction is incomplete. Ordinals never decrease."""
    if stats.incomplete is not None:
        short = stats.incomplete
        raise TransactionIncomplete(short.transaction_id, short.expected, short.seen)
    return replace(stats, next_ordinal=max(stats.next_ordinal, mark.next_ordinal))


def _properties(window: Window, stats: LogStats, late_tables: Sequence[str]) -> dict[str, str]:
    quarantine = head(window.quarantine)
    optional = {TAKEN: str(quarantine.snapshot_id)} if quarantine is not None else {}
    if late_tables:
        optional[LATE] = json.dumps(sorted(late_tables))
    tables = {
        name: [table.changes, table.partial_updates, table.truncates] for name, table in stats.tables.items()
    }
    return {
        **optional,
        CYCLE: str(window.cycle),
        POSITION: str(window.watermark_micros),
        NEXT_ORDINAL: str(stats.next_ordinal),
        STATS: json.dumps(tables, sort_keys=True),
    }
