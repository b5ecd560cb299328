"""The second step of a cycle: records up to the watermark become changes in the log."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.catalog.lake import LOG, QUARANTINED, RAW
from cdc_platform.lake.commits.commits import (
    CYCLE,
    TAKEN,
    ancestors_of,
    fact,
    head,
    number_of,
    read_mark,
)
from cdc_platform.lake.state.quarantine import untaken_records
from cdc_platform.model.base.schemas import TIMESTAMP
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.lineage import watermark_micros
from cdc_platform.model.stream.quarantined_records import HeldRecord
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.ordering.addresses import call_waiting, tells_addresses, with_found_keys
from cdc_platform.pipeline.ordering.key_shifts import with_shifted_keys
from cdc_platform.pipeline.ordering.log_commit import commit_by_tasks, commit_here, commit_nothing, fits_here
from cdc_platform.pipeline.ordering.log_window import Window, log_before
from cdc_platform.pipeline.ordering.rewritten_files import settle_rewritten
from cdc_platform.pipeline.reading.read_reports import (
    has_texts,
    remembered_from,
    repeated_from,
    replayed_origins,
)
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema.evolve import data_changes_between, evolve_tables, known_through
from cdc_platform.pipeline.schema.fitting_shapes import fitting_shapes
from cdc_platform.pipeline.schema.key_shapes import Shape, shapes_in
from cdc_platform.pipeline.schema.schema_policies import with_refusals
from cdc_platform.pipeline.versions.lake_frames import read_own
from cdc_platform.spark.frames.small import interpreted
from cdc_platform.spark.log.event_order import (
    order_events,
)
from cdc_platform.spark.log.order import (
    SINGLE_TASK_RECORDS,
    TRANSACTION,
    LogStats,
    order_records,
)
from cdc_platform.spark.log.repeats import without_repeated


@dataclass(frozen=True)
class OrderOutcome:
    """How far the log reaches, and what one step has added to it."""

    cycle: int
    watermark_micros: int | None
    changes: int
    transactions: int
    quarantined: int


def order_changes(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    """Bring the log up to the watermark, and follow what has changed in the source's schema.

    Raises:
        TransactionIncomplete: records of a transaction at the watermark are missing; nothing was committed.
        CommitConflict: another run has committed the same cycle; nothing was changed.
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
    if watermark is None or lineage.cycle <= mark.cycle or watermark <= (mark.position_micros or 0):
        return OrderOutcome(mark.cycle, mark.position_micros, 0, 0, 0)
    late = (
        ()
        if pipeline.capabilities.hands_out_events
        else untaken_records(pipeline.lake, quarantine, _taken(log))
    )
    window = Window(pipeline.lake.system_table(RAW), quarantine, log, mark, lineage.cycle, watermark, late)
    expected = _count_records(window) + len(late)
    if expected == 0:
        stats = commit_nothing(window)
    else:
        # What may come again, or late, is looked for in the log, however long that is.
        asks_log = pipeline.capabilities.hands_out_events
        with interpreted(spark, when=expected <= SINGLE_TASK_RECORDS, in_one_task=not asks_log):
            stats = _commit_records(pipeline, spark, window, expected)
    return OrderOutcome(lineage.cycle, watermark, stats.changes, stats.transactions, stats.quarantined)


def _taken(log: Table) -> int | None:
    """Return the snapshot of quarantine whose replays the log has taken."""
    for snapshot in ancestors_of(log, head(log)):
        if fact(snapshot, CYCLE) is not None:
            return number_of(snapshot, TAKEN)
    return None


def _count_records(window: Window) -> int:
    """Return how many records lie between two watermarks, duplicates included; needs no Spark."""
    condition = data_changes_between(window.mark.position_micros, window.watermark_micros)
    scan = window.raw.scan(row_filter=condition, selected_fields=("kind", "record_timestamp"))
    return int(scan.to_arrow().num_rows)


def _commit_records(pipeline: Pipeline, spark: SparkSession, window: Window, expected: int) -> LogStats:
    raw = read_own(pipeline, spark, RAW, window.raw)
    condition = data_changes_between(window.mark.position_micros, window.watermark_micros)
    has_addresses = pipeline.capabilities.knows_addresses and tells_addresses(pipeline, condition)
    records = _read_records(pipeline, spark, window, raw, expected)
    if has_addresses:
        records = with_shifted_keys(pipeline, records, condition)
        records = with_found_keys(pipeline, records, raw, condition)
    fitting: list[Shape] = []
    if not pipeline.capabilities.comes_in_order:
        shapes, known = shapes_in(pipeline, condition), known_through(pipeline, window.mark.cycle)
        records = with_refusals(pipeline, records, condition, known, shapes)
        # What is replayed as it was read may have been read by a former version.
        if not has_texts(pipeline, window.reports):
            fitting = fitting_shapes(pipeline, shapes)
    in_order = _order(pipeline, records, window, expected, fitting)
    if fits_here(window):
        stats = commit_here(pipeline, spark, in_order.toArrow(), window)
    else:
        stats = commit_by_tasks(pipeline, spark, in_order, window)
    if has_addresses:
        call_waiting(pipeline, raw, _between(raw, window))
    return stats


def _read_records(
    pipeline: Pipeline, spark: SparkSession, window: Window, raw: DataFrame, expected: int
) -> DataFrame:
    """Return the raw records of a window that the log has not had."""
    records = _between(raw, window)
    if window.late:
        records = records.unionByName(_judged_again(raw, window.late))
    if pipeline.capabilities.repeats_within_s is None or not window.mark.next_ordinal:
        return records
    replayed = replayed_origins(pipeline, window.reports)
    repeated = repeated_from(pipeline, window.reports)
    log = _remembered(pipeline, spark, window, repeated, everything=bool(replayed))
    is_small = expected <= SINGLE_TASK_RECORDS
    return without_repeated(records, log, pipeline.capabilities, replayed, repeated, is_small=is_small)


def _order(
    pipeline: Pipeline, records: DataFrame, window: Window, expected: int, fitting: Sequence[Shape]
) -> DataFrame:
    first, tables = window.mark.next_ordinal, pipeline.known_tables
    if pipeline.capabilities.hands_out_events:
        return order_events(records, first, expected, tables, pipeline.capabilities, fitting)
    return order_records(records, first, expected, tables)


def _remembered(
    pipeline: Pipeline, spark: SparkSession, window: Window, repeated: int | None, *, everything: bool
) -> DataFrame:
    """Return the part of the log whose events may come again; the bound keeps older files unread."""
    log = log_before(pipeline, spark, window)
    if everything:
        return log
    oldest = remembered_from(pipeline, window.mark.position_micros or 0, repeated)
    return log.where(F.col("commit_timestamp") >= F.lit(to_datetime(oldest)))


def _between(raw: DataFrame, window: Window) -> DataFrame:
    until = F.lit(to_datetime(window.watermark_micros))
    records = raw.where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value) & (F.col("record_timestamp") <= until)
    )
    if window.mark.position_micros is None:
        return records
    return records.where(F.col("record_timestamp") > F.lit(to_datetime(window.mark.position_micros)))


def _judged_again(raw: DataFrame, late: Sequence[HeldRecord]) -> DataFrame:
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
