"""The second step of a tick: records up to the watermark become changes in the log."""

import json
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import TransactionIncomplete
from cdc_platform.lake.commits import NEXT_ORDINAL, POSITION, STATS, TICK, Mark, read_mark
from cdc_platform.lake.lake import LOG, QUARANTINED, RAW
from cdc_platform.lake.writes import overwrite_tick
from cdc_platform.model.lineage import watermark_micros
from cdc_platform.model.records import RecordKind
from cdc_platform.model.schemas import CHANGE_LOG
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.trace import trace_lineage
from cdc_platform.spark.order import LogStats, measure, order_records, sound_changes, unsound_records


@dataclass(frozen=True)
class OrderOutcome:
    """How far the log reaches, and what one step has added to it."""

    tick: int
    watermark_micros: int | None
    changes: int
    transactions: int
    quarantined: int


def order_changes(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    """Bring the log up to the watermark.

    Raises:
        TransactionIncomplete: records of a transaction at the watermark are missing; nothing was committed.
        CommitConflict: another run has committed the same tick; nothing was changed.
    """
    lineage = trace_lineage(pipeline)
    log = pipeline.lake.system_table(LOG)
    mark = read_mark(log)
    watermark = watermark_micros(lineage)
    if watermark is None or lineage.tick <= mark.tick or watermark <= (mark.position_micros or 0):
        return OrderOutcome(mark.tick, mark.position_micros, 0, 0, 0)
    expected = _count_window(pipeline, mark.position_micros, watermark)
    if expected == 0:
        stats = LogStats({}, 0, 0, 0, mark.next_ordinal, None)
        properties = _properties(lineage.tick, watermark, stats)
        log.append(CHANGE_LOG.empty_table(), snapshot_properties=properties)
    else:
        stats = _commit_window(pipeline, spark, mark, lineage.tick, watermark, expected)
    return OrderOutcome(lineage.tick, watermark, stats.changes, stats.transactions, stats.quarantined)


def _count_window(pipeline: Pipeline, after_exclusive_micros: int | None, until_inclusive_micros: int) -> int:
    """Return how many records lie between two watermarks, duplicates included; needs no Spark."""
    until = to_datetime(until_inclusive_micros).isoformat()
    in_window = f"kind = '{RecordKind.DATA_CHANGE.value}' and record_timestamp <= '{until}'"
    if after_exclusive_micros is not None:
        in_window += f" and record_timestamp > '{to_datetime(after_exclusive_micros).isoformat()}'"
    raw = pipeline.lake.system_table(RAW)
    scan = raw.scan(row_filter=in_window, selected_fields=("kind", "record_timestamp"))
    return int(scan.to_arrow().num_rows)


def _commit_window(
    pipeline: Pipeline, spark: SparkSession, mark: Mark, tick: int, watermark: int, expected: int
) -> LogStats:
    lake = pipeline.lake
    log = lake.system_table(LOG)
    records = _window(spark.table(lake.spark_system_table(RAW)), mark.position_micros, watermark)
    ordered = order_records(records, mark.next_ordinal, expected).persist()
    try:
        stats = measure(ordered)
        if stats.incomplete is not None:
            short = stats.incomplete
            raise TransactionIncomplete(short.transaction_id, short.expected, short.seen)
        if stats.quarantined:
            quarantine = lake.system_table(QUARANTINED)
            target = lake.spark_system_table(QUARANTINED)
            overwrite_tick(unsound_records(ordered, tick), target, quarantine, tick, {})
        stats = _never_back(stats, mark)
        changes = sound_changes(ordered, tick, CHANGE_LOG.names)
        overwrite_tick(changes, lake.spark_system_table(LOG), log, tick, _properties(tick, watermark, stats))
    finally:
        ordered.unpersist()
    return stats


def _window(raw: DataFrame, after_exclusive_micros: int | None, until_inclusive_micros: int) -> DataFrame:
    until = F.lit(to_datetime(until_inclusive_micros))
    records = raw.where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value) & (F.col("record_timestamp") <= until)
    )
    if after_exclusive_micros is None:
        return records
    return records.where(F.col("record_timestamp") > F.lit(to_datetime(after_exclusive_micros)))


def _never_back(stats: LogStats, mark: Mark) -> LogStats:
    ordinal = max(stats.next_ordinal, mark.next_ordinal)
    return LogStats(
        stats.tables, stats.transactions, stats.records, stats.quarantined, ordinal, stats.incomplete
    )


def _properties(tick: int, watermark: int, stats: LogStats) -> dict[str, str]:
    tables = {name: [table.changes, table.patches] for name, table in stats.tables.items()}
    return {
        TICK: str(tick),
        POSITION: str(watermark),
        NEXT_ORDINAL: str(stats.next_ordinal),
        STATS: json.dumps(tables, sort_keys=True),
    }
