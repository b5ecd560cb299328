"""Commits of ordered changes to the log, with what goes to quarantine and what deleted rows leave."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.errors import TransactionIncomplete
from cdc_platform.lake.catalog.lake import DELETION_MARKERS, LOG, QUARANTINED
from cdc_platform.lake.commits.commits import (
    CYCLE,
    LATE,
    NEXT_ORDINAL,
    POSITION,
    STATS,
    TAKEN,
    Mark,
    bytes_since,
    head,
)
from cdc_platform.lake.commits.writes import append_cycle, commit_cycle, replace_cycle
from cdc_platform.pipeline.completing.equal_rows import EqualRows
from cdc_platform.pipeline.completing.resolve import complete_changes, complete_few
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.ordering.log_window import Window, log_before
from cdc_platform.pipeline.reading.local_read import MOST_BYTES
from cdc_platform.pipeline.reading.read_reports import has_texts
from cdc_platform.spark.frames.table_frames import hold
from cdc_platform.spark.log.event_order import measure_events, with_whole_key_changes, with_whole_transactions
from cdc_platform.spark.log.keyless import IS_UNNUMBERED, number_copies, unnumbered_rows
from cdc_platform.spark.log.order import UNSOUND, LogStats, measure, sound_changes, unsound_records
from cdc_platform.spark.log.ordered_rows import (
    deletion_marker_rows,
    measure_event_rows,
    measure_rows,
    number_few,
    sound_rows,
    unnumbered_few,
)
from cdc_platform.spark.tables.deletion_markers import deletion_markers


def commit_nothing(window: Window) -> LogStats:
    """Move the watermark without Spark, in a cycle that has no changes."""
    stats = LogStats({}, 0, 0, window.mark.next_ordinal, None)
    nothing = window.log.schema().as_arrow().empty_table()
    append_cycle(nothing, window.log, window.step, _properties(window, stats, ()))
    return stats


def commit_by_tasks(pipeline: Pipeline, spark: SparkSession, in_order: DataFrame, window: Window) -> LogStats:
    """Let Spark's tasks complete, write and commit any number of changes."""
    lake, step = pipeline.lake, window.step
    with ExitStack() as held:
        ordered = _settled(pipeline, spark, hold(held, in_order), window, held)
        if pipeline.capabilities.leaves_values_out:
            ordered = complete_changes(pipeline, spark, ordered, window.mark.cycle, held)
        stats = _never_back(_measured(pipeline, ordered), window.mark)
        _require_whole(stats)
        if stats.quarantined:
            unsound = unsound_records(ordered, window.cycle)
            commit_cycle(unsound, lake.spark_system_table(QUARANTINED), window.quarantine, step, {})
        if not pipeline.capabilities.comes_in_order:
            graves = deletion_markers(ordered, window.cycle)
            commit_cycle(
                graves,
                lake.spark_system_table(DELETION_MARKERS),
                lake.system_table(DELETION_MARKERS),
                step,
                {},
            )
        changes = sound_changes(ordered, window.cycle, [field.name for field in window.log.schema().fields])
        properties = _properties(window, stats, late_tables(pipeline, window, stats))
        commit_cycle(changes, lake.spark_system_table(LOG), window.log, step, properties)
    return stats


def fits_here(window: Window) -> bool:
    """Whether the records of a window are so few that this process holds them all."""
    if window.late:
        return False
    held_bytes = bytes_since(window.raw, window.mark.position_micros)
    return held_bytes is not None and held_bytes <= MOST_BYTES


def commit_here(pipeline: Pipeline, spark: SparkSession, rows: pa.Table, window: Window) -> LogStats:
    """Commit a small batch of ordered changes without a Spark task that writes or a cached frame."""
    if pipeline.capabilities.hands_out_events:
        rows = _completed_few(pipeline, spark, rows, window)
        measured = measure_event_rows(rows)
    else:
        measured = measure_rows(rows)
    stats = _never_back(measured, window.mark)
    _require_whole(stats)
    _set_aside(pipeline, spark, rows, window, stats)
    changes = sound_rows(rows, window.cycle, window.log.schema().as_arrow())
    properties = _properties(window, stats, late_tables(pipeline, window, stats))
    append_cycle(changes, window.log, window.step, properties)
    return stats


def _set_aside(
    pipeline: Pipeline, spark: SparkSession, rows: pa.Table, window: Window, stats: LogStats
) -> None:
    """Write what does not enter the log, and what is left of deleted rows; both before the log."""
    if stats.quarantined:
        unsound = unsound_records(spark.createDataFrame(rows), window.cycle).toArrow()
        replace_cycle(unsound, window.quarantine, window.step)
    if not pipeline.capabilities.comes_in_order:
        buried = pipeline.lake.system_table(DELETION_MARKERS)
        replace_cycle(deletion_marker_rows(rows, window.cycle), buried, window.step)


def _require_whole(stats: LogStats) -> None:
    if stats.incomplete is not None:
        short = stats.incomplete
        raise TransactionIncomplete(short.transaction_id, short.expected, short.seen)


def _completed_few(pipeline: Pipeline, spark: SparkSession, rows: pa.Table, window: Window) -> pa.Table:
    """Return a small batch of changes in the form in which they enter the log or quarantine."""
    if pc.any(rows[UNSOUND]).as_py():
        rows = _whole(pipeline, spark.createDataFrame(rows)).toArrow().sort_by("ordinal")
    few = unnumbered_few(rows)
    if few:
        rows = number_few(rows, _equal_rows(pipeline, spark, window).count_few(few))
    if pipeline.capabilities.leaves_values_out:
        rows = complete_few(pipeline, spark, rows, window.mark.cycle)
    return rows


def _settled(
    pipeline: Pipeline, spark: SparkSession, persisted: DataFrame, window: Window, held: ExitStack
) -> DataFrame:
    """Return ordered changes, settled by the other changes of their transactions and of equal rows."""
    ordered = _whole(pipeline, persisted)
    if pipeline.capabilities.has_keyless_tables and not ordered.where(IS_UNNUMBERED).limit(1).isEmpty():
        known = _equal_rows(pipeline, spark, window).count(unnumbered_rows(ordered))
        ordered = hold(held, number_copies(ordered, known))
    return ordered


def _whole(pipeline: Pipeline, ordered: DataFrame) -> DataFrame:
    """Return ordered changes, of which none is sound whose transaction or other half is not."""
    capabilities = pipeline.capabilities
    if capabilities.hands_out_events and capabilities.keeps_transactions:
        return with_whole_transactions(ordered)
    if capabilities.hands_out_events and capabilities.comes_in_order:
        return with_whole_key_changes(ordered)
    return ordered


def _equal_rows(pipeline: Pipeline, spark: SparkSession, window: Window) -> EqualRows:
    return EqualRows(pipeline, spark, window.mark.cycle, log_before(pipeline, spark, window))


def late_tables(pipeline: Pipeline, window: Window, stats: LogStats) -> tuple[str, ...]:
    """Return the tables of which a cycle has changes that belong before those of former cycles."""
    if not pipeline.capabilities.comes_in_order:
        return ()
    if pipeline.capabilities.hands_out_events:
        return tuple(stats.tables) if has_texts(pipeline, window.reports) else ()
    position = window.mark.position_micros or 0
    return tuple(name for name, table in stats.tables.items() if table.first_micros <= position)


def _measured(pipeline: Pipeline, ordered: DataFrame) -> LogStats:
    return measure_events(ordered) if pipeline.capabilities.hands_out_events else measure(ordered)


def _never_back(stats: LogStats, mark: Mark) -> LogStats:
    ordinal = max(stats.next_ordinal, mark.next_ordinal)
    return replace(stats, next_ordinal=ordinal)


def _properties(window: Window, stats: LogStats, late: Sequence[str]) -> dict[str, str]:
    known = head(window.quarantine)
    told = {TAKEN: str(known.snapshot_id)} if known is not None else {}
    if late:
        told[LATE] = json.dumps(sorted(late))
    tables = {
        name: [table.changes, table.patches, *([table.truncates] if table.truncates else [])]
        for name, table in stats.tables.items()
    }
    return {
        **told,
        CYCLE: str(window.cycle),
        POSITION: str(window.watermark_micros),
        NEXT_ORDINAL: str(stats.next_ordinal),
        STATS: json.dumps(tables, sort_keys=True),
    }
