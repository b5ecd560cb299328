"""The second step of a cycle: records up to the watermark become changes in the log."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.stored_names import DELETION_MARKERS, LOG, QUARANTINE, RAW
from cdc_platform.model.stream.lineage import watermark_micros
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.ordering.change_streams import ChangeStreams
from cdc_platform.pipeline.ordering.events import Events
from cdc_platform.pipeline.ordering.log_commit import commit_changes, commit_nothing, restore_replaced
from cdc_platform.pipeline.ordering.strategy import OrderingStrategy, Window
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema.schema_evolution import evolve_tables
from cdc_platform.pipeline.versions.lake_frames import read_own
from cdc_platform.spark.log.order import SINGLE_TASK_RECORDS, LogStats
from cdc_platform.spark.session.session_settings import interpreting


@dataclass(frozen=True)
class OrderOutcome:
    """End of the log, and the changes that one step added to it."""

    cycle: int
    watermark_micros: int | None
    changes: int
    transactions: int
    quarantined: int


@pipeline_step("order")
def order_changes(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    """Extend the log to the watermark, and follow changes of the source's schema.

    Raises:
        TransactionIncomplete: records of a transaction at the watermark are missing; nothing was committed.
        CommitConflict: another run has committed the same cycle; nothing was changed.
        SourceError: there are records to order, and the source does not state its schema.
        LakeDamaged: another program has replaced the log: it ends before the newest cut.
    """
    is_event_source = pipeline.capabilities.delivers_events
    strategy = Events(pipeline, spark) if is_event_source else ChangeStreams(pipeline)
    outcome = _extend_log(strategy, spark)
    strategy.finish()
    evolve_tables(pipeline)
    return outcome


def _extend_log(strategy: OrderingStrategy, spark: SparkSession) -> OrderOutcome:
    pipeline = strategy.pipeline
    lake, lineage = pipeline.lake, trace_lineage(pipeline)
    # Before the log: rows of a cycle that another process adds to it meanwhile must not be replaced, and what
    # another process publishes is in the log first.
    cut = newest_cut(lake)
    quarantine = lake.system_table(QUARANTINE)
    markers = lake.system_table(DELETION_MARKERS) if strategy.leaves_deletion_markers else None
    log = lake.system_table(LOG)
    mark = read_mark(log)
    if cut is not None and mark.cycle < cut.cycle:
        raise LakeDamaged.replaced(f"{lake.system_namespace}.{LOG}")
    if restore_replaced(pipeline, spark, [table for table in (quarantine, markers) if table], mark.cycle):
        # The loaded versions are outdated.
        return _extend_log(strategy, spark)
    watermark = watermark_micros(lineage)
    if watermark is None or lineage.cycle <= mark.cycle or watermark <= (mark.position_micros or 0):
        return OrderOutcome(mark.cycle, mark.position_micros, 0, 0, 0)
    late_records = strategy.late_records(quarantine, log)
    raw = lake.system_table(RAW)
    window = Window(raw, quarantine, log, mark, lineage.cycle, watermark, late_records, markers)
    expected_records = window.content.records + len(late_records)
    if expected_records == 0:
        stats = commit_nothing(window)
    else:
        replay_note = f", {len(late_records):,} of them replayed" if late_records else ""
        is_small = expected_records <= SINGLE_TASK_RECORDS
        with (
            pipeline.progress.step(f"order {expected_records:,} records{replay_note}"),
            interpreting(spark, when=is_small, in_one_task=not strategy.reads_log),
        ):
            stats = _commit_records(strategy, spark, window, expected_records)
    return OrderOutcome(lineage.cycle, watermark, stats.changes, stats.transactions, stats.quarantined)


def _commit_records(
    strategy: OrderingStrategy, spark: SparkSession, window: Window, expected_records: int
) -> LogStats:
    # Spark would read and move the columns that no change has, too: a fault shows the whole record.
    raw = read_own(strategy.pipeline, spark, RAW, window.raw).drop("child_partitions", "read_window")
    with strategy.ordered(raw, window, expected_records) as in_order:
        return commit_changes(strategy, in_order, window)
