"""The second step of a tick: records up to the watermark become changes in the log."""

import json
from dataclasses import dataclass, replace

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import CommitConflict, TransactionIncomplete
from cdc_platform.lake.commits import NEXT_ORDINAL, POSITION, STATS, TICK, Mark, read_mark
from cdc_platform.lake.lake import BURIED, LOG, QUARANTINED, RAW
from cdc_platform.lake.writes import TickStep, commit_tick
from cdc_platform.model.lineage import watermark_micros
from cdc_platform.model.records import RecordKind
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.pipeline.evolve import data_changes_between, evolve_tables
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.resolve import complete_changes
from cdc_platform.pipeline.trace import trace_lineage
from cdc_platform.spark.keyless import IS_UNNUMBERED, number_copies
from cdc_platform.spark.order import (
    SINGLE_TASK_RECORDS,
    LogStats,
    measure,
    order_records,
    sound_changes,
    unsound_records,
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


def order_changes(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    """Bring the log up to the watermark, and follow what has changed in the source's schema.

    Raises:
        TransactionIncomplete: records of a transaction at the watermark are missing; nothing was committed.
        CommitConflict: another run has committed the same tick; nothing was changed.
        SourceError: there are records to order, and the source does not tell what its tables look like.
    """
    outcome = _extend_log(pipeline, spark)
    evolve_tables(pipeline)
    return outcome


def _extend_log(pipeline: Pipeline, spark: SparkSession) -> OrderOutcome:
    lineage = trace_lineage(pipeline)
    quarantine, log = pipeline.lake.system_table(QUARANTINED), pipeline.lake.system_table(LOG)
    mark = read_mark(log)
    watermark = watermark_micros(lineage)
    if watermark is None or lineage.tick <= mark.tick or watermark <= (mark.position_micros or 0):
        return OrderOutcome(mark.tick, mark.position_micros, 0, 0, 0)
    window = _Window(quarantine, log, mark, lineage.tick, watermark)
    expected = _count_records(pipeline, window)
    if expected == 0:
        stats = _commit_nothing(window)
    else:
        with interpreted(spark, when=expected <= SINGLE_TASK_RECORDS):
            stats = _commit_records(pipeline, spark, window, expected)
    return OrderOutcome(lineage.tick, watermark, stats.changes, stats.transactions, stats.quarantined)


def _count_records(pipeline: Pipeline, window: _Window) -> int:
    """Return how many records lie between two watermarks, duplicates included; needs no Spark."""
    condition = data_changes_between(window.mark.position_micros, window.watermark_micros)
    raw = pipeline.lake.system_table(RAW)
    scan = raw.scan(row_filter=condition, selected_fields=("kind", "record_timestamp"))
    return int(scan.to_arrow().num_rows)


def _commit_nothing(window: _Window) -> LogStats:
    """Move the watermark without Spark, in a tick that has no changes."""
    stats = LogStats({}, 0, 0, window.mark.next_ordinal, None)
    try:
        nothing = window.log.schema().as_arrow().empty_table()
        window.log.append(nothing, snapshot_properties=_properties(window, stats))
    except CommitFailedException as error:
        raise CommitConflict(
            f"Tick {window.tick} of the change log was not committed, because another run has committed "
            "since it was planned; the next tick goes on from there."
        ) from error
    return stats


def _commit_records(pipeline: Pipeline, spark: SparkSession, window: _Window, expected: int) -> LogStats:
    lake, step = pipeline.lake, TickStep(window.mark.tick, window.tick)
    records = _between(spark.table(lake.spark_system_table(RAW)), window)
    if pipeline.traits.repeats_within_s is not None:
        records = without_repeated(records, spark.table(lake.spark_system_table(LOG)), pipeline.traits)
    ordered = order_records(
        records, window.mark.next_ordinal, expected, pipeline.known_tables, pipeline.traits
    ).persist()
    if pipeline.traits.has_keyless_tables and not ordered.where(IS_UNNUMBERED).limit(1).isEmpty():
        ordered = number_copies(ordered, spark.table(lake.spark_system_table(LOG)))
    if pipeline.traits.leaves_values_out:
        ordered = complete_changes(pipeline, spark, ordered, window.mark.tick)
    try:
        stats = _never_back(measure(ordered, pipeline.traits), window.mark)
        if stats.incomplete is not None:
            short = stats.incomplete
            raise TransactionIncomplete(short.transaction_id, short.expected, short.seen)
        if stats.quarantined:
            held = unsound_records(ordered, window.tick)
            commit_tick(held, lake.spark_system_table(QUARANTINED), window.quarantine, step, {})
        if not pipeline.traits.comes_in_order:
            _bury(pipeline, ordered, window, step)
        changes = sound_changes(ordered, window.tick, [field.name for field in window.log.schema().fields])
        commit_tick(changes, lake.spark_system_table(LOG), window.log, step, _properties(window, stats))
    finally:
        ordered.unpersist()
    return stats


def _bury(pipeline: Pipeline, ordered: DataFrame, window: _Window, step: TickStep) -> None:
    """Keep what is deleted, so that an older event which comes later does not bring it back."""
    lake = pipeline.lake
    graves = tombstones(ordered, window.tick)
    commit_tick(graves, lake.spark_system_table(BURIED), lake.system_table(BURIED), step, {})


def _between(raw: DataFrame, window: _Window) -> DataFrame:
    until = F.lit(to_datetime(window.watermark_micros))
    records = raw.where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value) & (F.col("record_timestamp") <= until)
    )
    if window.mark.position_micros is None:
        return records
    return records.where(F.col("record_timestamp") > F.lit(to_datetime(window.mark.position_micros)))


def _never_back(stats: LogStats, mark: Mark) -> LogStats:
    ordinal = max(stats.next_ordinal, mark.next_ordinal)
    return replace(stats, next_ordinal=ordinal)


def _properties(window: _Window, stats: LogStats) -> dict[str, str]:
    tables = {
        name: [table.changes, table.patches, *([table.truncates] if table.truncates else [])]
        for name, table in stats.tables.items()
    }
    return {
        TICK: str(window.tick),
        POSITION: str(window.watermark_micros),
        NEXT_ORDINAL: str(stats.next_ordinal),
        STATS: json.dumps(tables, sort_keys=True),
    }
