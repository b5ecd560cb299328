"""Checks of the change log: it has all records that were read, once, in whole transactions and in order."""

from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.quarantine import has_replays, replayed_records
from cdc_platform.model.base.stored_names import LOG, QUARANTINE, RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.checks.check_result import EVERYTHING, CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.file_contents import between_positions, measure_content
from cdc_platform.pipeline.reading.read_reports import remembered_from, repeated_from
from cdc_platform.pipeline.versions.lake_frames import read_data_changes, read_log, read_own
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.log.repeats import RECORD_ID, seconds_before

_IDENTITY: Final = ("record_id", "mod_ordinal")
"""Columns that identify a change of the log."""
_MODS: Final = "mods"
"""Column with the number of changes in a record that was read."""


def check_nothing_lost(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
    """Compare the records read with those in the log and in quarantine.

    A record of which the log has only some changes is lost, too.
    """
    # Another process may extend the log during the check.
    mark = read_mark(pipeline.lake.system_table(LOG))
    until = mark.position_micros or 0
    raw = read_data_changes(pipeline, spark).where(F.col("record_timestamp") <= F.lit(to_datetime(until)))
    if scope.after_micros is not None:
        raw = raw.where(F.col("record_timestamp") > F.lit(to_datetime(scope.after_micros)))
    mods = "1" if pipeline.capabilities.delivers_events else "greatest(size(mods.keys), 1)"
    raw_records = raw.selectExpr(f"{RECORD_ID} AS record_id", f"{mods} AS {_MODS}")
    # Duplicates were logged before, and replayed records are logged later.
    repeats_within_s, has_late = pipeline.capabilities.repeats_within_s, has_replays(pipeline.lake)
    around = EVERYTHING if repeats_within_s is not None or has_late else scope
    quarantined_records = _quarantine(pipeline, spark, around).where(F.col("cycle") <= mark.cycle)
    log_records = _log(pipeline, spark, around).where(F.col("cycle") <= mark.cycle)
    if repeats_within_s is not None and scope.after_micros is not None and not has_late:
        log_records = _repeatable(pipeline, log_records, scope.after_micros, until)
    places = {
        "read": raw_records,
        "logged": log_records.select("record_id"),
        "quarantined": quarantined_records.where("replayed_at is null").select("record_id"),
        "replayed": quarantined_records.where("replayed_at is not null").select("record_id"),
    }
    if around is not scope:
        of_read = raw_records.select("record_id").distinct()
        places |= {
            name: frame.join(of_read, "record_id", "left_semi")
            for name, frame in places.items()
            if name != "read"
        }
    total, distinct, in_log, in_quarantine, lost_records = _count_places(
        places, comes_mended=pipeline.capabilities.delivers_events
    )
    return CheckResult(
        passed=lost_records == 0 and distinct == in_log + in_quarantine,
        summary=f"{total:,} records read = {in_log:,} in the log + {total - distinct:,} duplicates "
        f"+ {in_quarantine:,} in quarantine, {lost_records:,} lost",
        facts={
            "records_read": total,
            "records_in_log": in_log,
            "duplicates": total - distinct,
            "quarantined": in_quarantine,
            "lost": lost_records,
        },
    )


def _repeatable(pipeline: Pipeline, log: DataFrame, after_micros: int, until_micros: int) -> DataFrame:
    """Return the part of the log in which records read after a position may have a duplicate."""
    repeats_since = repeated_from(pipeline, between_positions(RecordKind.FILE, after_micros, until_micros))
    oldest = remembered_from(pipeline, after_micros, repeats_since)
    content = measure_content(pipeline.lake.system_table(RAW), after_micros, until_micros)
    return log.where(F.col("commit_timestamp") >= F.lit(to_datetime(oldest))).where(
        content.earlier_changes_sql
    )


def _count_places(places: Mapping[str, DataFrame], *, comes_mended: bool) -> tuple[int, ...]:
    """Return the numbers of records read, with and without duplicates, in the log, in quarantine and lost.

    A replayed record counts as quarantined until the log has it, possibly under another identity. With
    ``comes_mended``, a rewritten file may bring a record into the log without a replay.
    """
    flags = [
        frame.select(
            "record_id",
            *(F.lit(int(name == other)).alias(other) for other in places),
            F.expr(_MODS if name == "read" else "0").alias(_MODS),
        )
        for name, frame in places.items()
    ]
    records = reduce(DataFrame.unionByName, flags).groupBy("record_id")
    read, logged, quarantined, replayed = (F.col(name) for name in places)
    is_open = (quarantined > 0) & (logged == 0) if comes_mended else quarantined > 0
    is_quarantined = is_open | (replayed > 0) & (logged == 0)
    is_lost = (logged == 0) & ~is_quarantined | (logged > 0) & (logged < F.col(_MODS))
    return _first(
        records.agg(*(F.sum(name).alias(name) for name in places), F.max(_MODS).alias(_MODS)).agg(
            F.sum(read),
            F.count_if(read > 0),
            F.count_if(logged > 0),
            F.count_if(is_quarantined),
            F.count_if((read > 0) & is_lost),
        )
    )


def _first(frame: DataFrame) -> tuple[int, ...]:
    """Return the only row of a frame of numbers; the sum of no row is 0."""
    return tuple(int(number or 0) for number in frame.collect()[0])


def check_exactly_once(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
    """Count changes that the log holds more than once."""
    changes = _log(pipeline, spark, scope)
    times = changes.groupBy(*_IDENTITY).count()
    total, repeats = _first(times.agg(F.sum("count"), F.count_if(F.col("count") > 1)))
    within_s = pipeline.capabilities.repeats_within_s
    if repeats and within_s is not None:
        repeats = _count_soon(changes.join(times.where("count > 1"), list(_IDENTITY), "left_semi"), within_s)
    return CheckResult(
        repeats == 0,
        f"{total:,} changes, {repeats:,} of them repeated",
        {"changes": total, "repeated": repeats},
    )


def _count_soon(changes: DataFrame, within_s: float) -> int:
    """Count duplicates within the time in which they are recognised; later ones change no row."""
    before = F.lag("commit_timestamp").over(Window.partitionBy(*_IDENTITY).orderBy("commit_timestamp"))
    is_soon = before >= seconds_before("commit_timestamp", within_s)
    soon = changes.select(*_IDENTITY, is_soon.alias("is_soon")).where("is_soon")
    return soon.select(*_IDENTITY).distinct().count()


def check_transactions(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> CheckResult:
    """Look for transactions that are cut, spread, or out of commit order."""
    changes = _log(pipeline, spark, scope)
    by_transaction = changes.groupBy("commit_timestamp", "transaction_id").agg(
        F.count_distinct("record_id").alias("seen"),
        F.max("records_in_transaction").alias("announced"),
        F.count_distinct("cycle").alias("cycles"),
    )
    is_cut_up = (F.col("seen") != F.col("announced")) | (F.col("cycles") != 1)
    total, cut_up = _first(by_transaction.agg(F.count("*"), F.count_if(is_cut_up)))
    is_replayed = F.lit(False)
    if has_replays(pipeline.lake):
        # A replayed record keeps its commit timestamp.
        replays = local_frame(spark, replayed_records(pipeline.lake)).distinct()
        changes = changes.join(replays.withColumn("is_replayed", F.lit(True)), "record_id", "left")
        is_replayed = F.coalesce("is_replayed", is_replayed)
    out_of_order = _count_out_of_order(changes, is_replayed)
    return CheckResult(
        cut_up == 0 and out_of_order == 0,
        f"{total:,} transactions, {cut_up:,} not whole, {out_of_order:,} changes out of order",
        {"transactions": total, "not_whole": cut_up, "out_of_order": out_of_order},
    )


def _count_out_of_order(changes: DataFrame, is_replayed: Column) -> int:
    """Count changes out of order within their cycle, and neighbouring cycles that overlap.

    Cycles overlap by the ordinals or the commit timestamps of changes that were not replayed.
    """
    before = F.lag("ordering_key").over(Window.partitionBy("cycle").orderBy("ordinal"))
    places = changes.select("*", (F.col("ordering_key") <= before).alias("is_displaced"))
    ordinal, moment = (F.when(~is_replayed, F.col(name)) for name in ("ordinal", "commit_timestamp"))
    ends = (F.min(ordinal), F.max(ordinal), F.min(moment), F.max(moment))
    cycles = places.groupBy("cycle").agg(F.count_if("is_displaced"), *ends).collect()
    rows = sorted(tuple(row) for row in cycles if row[2] is not None)
    overlaps = sum(later[2] <= earlier[3] or later[4] <= earlier[5] for earlier, later in pairwise(rows))
    return sum(int(row[1]) for row in cycles) + int(overlaps)


def _log(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> DataFrame:
    return read_log(pipeline, spark).where(F.col("cycle") > scope.after_cycle)


def _quarantine(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> DataFrame:
    records = read_own(pipeline, spark, QUARANTINE)
    return records.where(F.col("cycle") > scope.after_cycle)
