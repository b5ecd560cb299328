"""The second step of a tick: records up to the watermark become changes in the log."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import TransactionIncomplete
from cdc_platform.lake.commits import (
    LATE,
    NEXT_ORDINAL,
    POSITION,
    STATS,
    TAKEN,
    TICK,
    Mark,
    ancestors_of,
    bytes_since,
    fact,
    head,
    read_mark,
)
from cdc_platform.lake.lake import BURIED, LOG, QUARANTINED, RAW
from cdc_platform.lake.quarantine import untaken_records
from cdc_platform.lake.writes import TickStep, append_tick, commit_tick, replace_tick
from cdc_platform.model.held import HeldRecord
from cdc_platform.model.lineage import watermark_micros
from cdc_platform.model.records import RecordKind
from cdc_platform.model.schemas import TIMESTAMP
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.pipeline.addresses import call_waiting, tells_addresses, with_found_keys
from cdc_platform.pipeline.evolve import between_positions, data_changes_between, evolve_tables, known_through
from cdc_platform.pipeline.fitting_shapes import fitting_shapes
from cdc_platform.pipeline.key_shapes import Shape, shapes_in
from cdc_platform.pipeline.key_shifts import with_shifted_keys
from cdc_platform.pipeline.lake_frames import read_own
from cdc_platform.pipeline.near import MOST_BYTES
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.reported import has_texts, remembered_from, repeated_from, replayed_origins
from cdc_platform.pipeline.resolve import complete_changes, complete_few
from cdc_platform.pipeline.rewritten_files import settle_rewritten
from cdc_platform.pipeline.schema_policies import with_refusals
from cdc_platform.pipeline.trace import trace_lineage
from cdc_platform.spark.event_order import (
    measure_events,
    order_events,
    with_whole_key_changes,
    with_whole_transactions,
)
from cdc_platform.spark.frames import hold
from cdc_platform.spark.keyless import IS_UNNUMBERED, number_copies
from cdc_platform.spark.order import (
    SINGLE_TASK_RECORDS,
    TRANSACTION,
    LogStats,
    measure,
    order_records,
    sound_changes,
    unsound_records,
)
from cdc_platform.spark.ordered_rows import (
    measure_event_rows,
    measure_rows,
    sound_rows,
    stand_alone,
    tombstone_rows,
)
from cdc_platform.spark.repeats import without_repeated
from cdc_platform.spark.small import interpreted
from cdc_platform.spark.tombstones import tombstones


@dataclass(frozen=True)
class OrderOutcome:
    """How far the log reaches, and what one step has added to it."""

    tick: int
    watermark_micros: int | None
    changes: int
    transactions: int
    quarantined: int


@dataclass(frozen=True)
class _Window:
    """Records between the log's watermark and the new one; the tables are the versions that it continues."""

    quarantine: Table
    log: Table
    mark: Mark
    tick: int
    watermark_micros: int
    late: tuple[HeldRecord, ...] = ()
    """Records of quarantine whose transactions are judged anew."""

    @property
    def step(self) -> TickStep:
        """From the newest tick of the log to the one that is committed next."""
        return TickStep(self.mark.tick, self.tick)


def order_changes(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    """Bring the log up to the watermark, and follow what has changed in the source's schema.

    Raises:
        TransactionIncomplete: records of a transaction at the watermark are missing; nothing was committed.
        CommitConflict: another run has committed the same tick; nothing was changed.
        SourceError: there are records to order, and the source does not tell what its tables look like.
    """
    outcome = _extend_log(pipeline, spark)
    settle_rewritten(pipeline)
    evolve_tables(pipeline)
    return outcome


def _extend_log(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    lineage = trace_lineage(pipeline)
    quarantine, log = pipeline.lake.system_table(QUARANTINED), pipeline.lake.system_table(LOG)
    mark = read_mark(log)
    watermark = watermark_micros(lineage)
    if watermark is None or lineage.tick <= mark.tick or watermark <= (mark.position_micros or 0):
        return OrderOutcome(mark.tick, mark.position_micros, 0, 0, 0)
    late = () if pipeline.traits.hands_out_events else untaken_records(pipeline.lake, quarantine, _taken(log))
    window = _Window(quarantine, log, mark, lineage.tick, watermark, late)
    expected = _count_records(pipeline, window) + len(late)
    if expected == 0:
        stats = _commit_nothing(window)
    else:
        # What may come again, or late, is looked for in the log, however long that is.
        asks_log = pipeline.traits.hands_out_events
        with interpreted(spark, when=expected <= SINGLE_TASK_RECORDS, in_one_task=not asks_log):
            stats = _commit_records(pipeline, spark, window, expected)
    return OrderOutcome(lineage.tick, watermark, stats.changes, stats.transactions, stats.quarantined)


def _taken(log: Table) -> int | None:
    """Return the snapshot of quarantine whose replays the log has taken."""
    for snapshot in ancestors_of(log, head(log)):
        if fact(snapshot, TICK) is not None:
            taken = fact(snapshot, TAKEN)
            return int(taken) if taken is not None else None
    return None


def _count_records(pipeline: Pipeline, window: _Window) -> int:
    """Return how many records lie between two watermarks, duplicates included; needs no Spark."""
    condition = data_changes_between(window.mark.position_micros, window.watermark_micros)
    raw = pipeline.lake.system_table(RAW)
    scan = raw.scan(row_filter=condition, selected_fields=("kind", "record_timestamp"))
    return int(scan.to_arrow().num_rows)


def _commit_nothing(window: _Window) -> LogStats:
    """Move the watermark without Spark, in a tick that has no changes."""
    stats = LogStats({}, 0, 0, window.mark.next_ordinal, None)
    nothing = window.log.schema().as_arrow().empty_table()
    append_tick(nothing, window.log, window.step, _properties(window, stats, ()))
    return stats


def _commit_records(pipeline: Pipeline, spark: SparkSession, window: _Window, expected: int) -> LogStats:
    raw = read_own(pipeline, spark, RAW)
    condition = data_changes_between(window.mark.position_micros, window.watermark_micros)
    has_addresses = pipeline.traits.knows_addresses and tells_addresses(pipeline, condition)
    records = _read_records(pipeline, spark, window, raw, expected)
    if has_addresses:
        records = with_shifted_keys(pipeline, records, condition)
        records = with_found_keys(pipeline, records, raw, condition)
    fitting: list[Shape] = []
    if not pipeline.traits.comes_in_order:
        shapes, known = shapes_in(pipeline, condition), known_through(pipeline, window.mark.tick)
        records = with_refusals(pipeline, records, condition, known, shapes)
        # What is replayed as it was read may have been read by a former version.
        if not has_texts(pipeline, _reports(window)):
            fitting = fitting_shapes(pipeline, shapes)
    in_order = _order(pipeline, records, window, expected, fitting)
    if _fits_here(pipeline, window):
        stats = _commit_here(pipeline, spark, in_order.toArrow(), window)
    else:
        stats = _commit_by_tasks(pipeline, spark, in_order, window)
    if has_addresses:
        call_waiting(pipeline, raw, _between(raw, window))
    return stats


def _commit_by_tasks(
    pipeline: Pipeline, spark: SparkSession, in_order: DataFrame, window: _Window
) -> LogStats:
    """Let Spark's tasks complete, write and commit any number of changes."""
    lake, step = pipeline.lake, window.step
    with ExitStack() as held:
        ordered = _settled(pipeline, spark, hold(held, in_order), window, held)
        if pipeline.traits.leaves_values_out:
            ordered = complete_changes(pipeline, spark, ordered, window.mark.tick, held)
        stats = _never_back(_measured(pipeline, ordered), window.mark)
        _require_whole(stats)
        if stats.quarantined:
            unsound = unsound_records(ordered, window.tick)
            commit_tick(unsound, lake.spark_system_table(QUARANTINED), window.quarantine, step, {})
        if not pipeline.traits.comes_in_order:
            graves = tombstones(ordered, window.tick)
            commit_tick(graves, lake.spark_system_table(BURIED), lake.system_table(BURIED), step, {})
        changes = sound_changes(ordered, window.tick, [field.name for field in window.log.schema().fields])
        properties = _properties(window, stats, late_tables(pipeline, window, stats))
        commit_tick(changes, lake.spark_system_table(LOG), window.log, step, properties)
    return stats


def _fits_here(pipeline: Pipeline, window: _Window) -> bool:
    """Whether the records of a window are so few that this process holds them all."""
    if window.late:
        return False
    held_bytes = bytes_since(pipeline.lake.system_table(RAW), window.mark.position_micros)
    return held_bytes is not None and held_bytes <= MOST_BYTES


def _commit_here(pipeline: Pipeline, spark: SparkSession, rows: pa.Table, window: _Window) -> LogStats:
    """Commit a small batch of ordered changes without a Spark task that writes or a cached frame."""
    if pipeline.traits.hands_out_events:
        rows = _completed_few(pipeline, spark, rows, window)
        measured = measure_event_rows(rows)
    else:
        measured = measure_rows(rows)
    stats = _never_back(measured, window.mark)
    _require_whole(stats)
    if stats.quarantined:
        unsound = unsound_records(spark.createDataFrame(rows), window.tick).toArrow()
        replace_tick(unsound, window.quarantine, window.step)
    if not pipeline.traits.comes_in_order:
        graves = tombstone_rows(rows, window.tick)
        replace_tick(graves, pipeline.lake.system_table(BURIED), window.step)
    changes = sound_rows(rows, window.tick, window.log.schema().as_arrow())
    properties = _properties(window, stats, late_tables(pipeline, window, stats))
    append_tick(changes, window.log, window.step, properties)
    return stats


def _require_whole(stats: LogStats) -> None:
    if stats.incomplete is not None:
        short = stats.incomplete
        raise TransactionIncomplete(short.transaction_id, short.expected, short.seen)


def _read_records(
    pipeline: Pipeline, spark: SparkSession, window: _Window, raw: DataFrame, expected: int
) -> DataFrame:
    """Return the raw records of a window that the log has not had."""
    records = _between(raw, window)
    if window.late:
        records = records.unionByName(_judged_anew(raw, window.late))
    if pipeline.traits.repeats_within_s is None or not window.mark.next_ordinal:
        return records
    replayed = replayed_origins(pipeline, _reports(window))
    repeated = repeated_from(pipeline, _reports(window))
    log = _remembered(pipeline, spark, window, repeated, everything=bool(replayed))
    is_small = expected <= SINGLE_TASK_RECORDS
    return without_repeated(records, log, pipeline.traits, replayed, repeated, is_small=is_small)


def _order(
    pipeline: Pipeline, records: DataFrame, window: _Window, expected: int, fitting: Sequence[Shape]
) -> DataFrame:
    first, tables = window.mark.next_ordinal, pipeline.known_tables
    if pipeline.traits.hands_out_events:
        return order_events(records, first, expected, tables, pipeline.traits, fitting)
    return order_records(records, first, expected, tables)


def _completed_few(pipeline: Pipeline, spark: SparkSession, rows: pa.Table, window: _Window) -> pa.Table:
    """Return a small batch of changes in the form in which they enter the log or quarantine."""
    if not stand_alone(rows):
        with ExitStack() as held:
            rows = _settled(pipeline, spark, spark.createDataFrame(rows), window, held).toArrow()
        rows = rows.sort_by("ordinal")
    if pipeline.traits.leaves_values_out:
        rows = complete_few(pipeline, spark, rows, window.mark.tick)
    return rows


def _settled(
    pipeline: Pipeline, spark: SparkSession, persisted: DataFrame, window: _Window, held: ExitStack
) -> DataFrame:
    """Return ordered changes, settled by the other changes of their transactions and of equal rows."""
    ordered, traits = persisted, pipeline.traits
    if traits.hands_out_events and traits.keeps_transactions:
        ordered = with_whole_transactions(ordered)
    elif traits.hands_out_events and traits.comes_in_order:
        ordered = with_whole_key_changes(ordered)
    if traits.has_keyless_tables and not ordered.where(IS_UNNUMBERED).limit(1).isEmpty():
        numbered = number_copies(ordered, _log_before(pipeline, spark, window))
        ordered = hold(held, numbered)
    return ordered


def _remembered(
    pipeline: Pipeline, spark: SparkSession, window: _Window, repeated: int | None, *, everything: bool
) -> DataFrame:
    """Return the part of the log whose events may come again; the bound keeps older files unread."""
    log = _log_before(pipeline, spark, window)
    if everything:
        return log
    oldest = remembered_from(pipeline, window.mark.position_micros or 0, repeated)
    return log.where(F.col("commit_timestamp") >= F.lit(to_datetime(oldest)))


def _between(raw: DataFrame, window: _Window) -> DataFrame:
    until = F.lit(to_datetime(window.watermark_micros))
    records = raw.where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value) & (F.col("record_timestamp") <= until)
    )
    if window.mark.position_micros is None:
        return records
    return records.where(F.col("record_timestamp") > F.lit(to_datetime(window.mark.position_micros)))


def _judged_anew(raw: DataFrame, late: Sequence[HeldRecord]) -> DataFrame:
    """Return the raw records of transactions that lie in quarantine."""
    asked = sorted({(held.moment_micros, held.transaction_id or "") for held in late})
    moments, transactions = zip(*asked, strict=True)
    schema = pa.schema([("record_timestamp", TIMESTAMP), ("server_transaction_id", pa.string())])
    table = pa.table([list(map(to_datetime, moments)), list(transactions)], schema=schema)
    wanted = F.broadcast(raw.sparkSession.createDataFrame(table))
    first, last = (F.lit(to_datetime(micros)) for micros in (min(moments), max(moments)))
    records = raw.where(F.col("kind") == RecordKind.DATA_CHANGE.value)
    near = records.where(F.col("record_timestamp").between(first, last))
    return near.join(wanted, list(TRANSACTION), "left_semi")


def late_tables(pipeline: Pipeline, window: _Window, stats: LogStats) -> tuple[str, ...]:
    """Return the tables of which a tick has changes that belong before those of former ticks."""
    if not pipeline.traits.comes_in_order:
        return ()
    if pipeline.traits.hands_out_events:
        return tuple(stats.tables) if has_texts(pipeline, _reports(window)) else ()
    position = window.mark.position_micros or 0
    return tuple(name for name, table in stats.tables.items() if table.first_micros <= position)


def _reports(window: _Window) -> str:
    """Return the filter of what the ticks of a window tell of files."""
    return between_positions(RecordKind.FILE, window.mark.position_micros, window.watermark_micros)


def _log_before(pipeline: Pipeline, spark: SparkSession, window: _Window) -> DataFrame:
    """Return the version of the log that a window continues."""
    return read_own(pipeline, spark, LOG, window.log)


def _measured(pipeline: Pipeline, ordered: DataFrame) -> LogStats:
    return measure_events(ordered) if pipeline.traits.hands_out_events else measure(ordered)


def _never_back(stats: LogStats, mark: Mark) -> LogStats:
    ordinal = max(stats.next_ordinal, mark.next_ordinal)
    return replace(stats, next_ordinal=ordinal)


def _properties(window: _Window, stats: LogStats, late: Sequence[str]) -> dict[str, str]:
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
        TICK: str(window.tick),
        POSITION: str(window.watermark_micros),
        NEXT_ORDINAL: str(stats.next_ordinal),
        STATS: json.dumps(tables, sort_keys=True),
    }
