"""The platform's promises, each a check that looks at the lake and can fail."""

from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.commits import POSITION, ancestors_of, fact, head, read_mark
from cdc_platform.lake.control import load_lineage, load_stuck
from cdc_platform.lake.cuts import list_cuts
from cdc_platform.lake.lake import LOG, QUARANTINED, RAW
from cdc_platform.lake.quarantine import has_replays, replayed_records
from cdc_platform.model.lineage import violations, watermark_micros
from cdc_platform.model.records import RecordKind
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.model.traits import SourceTraits
from cdc_platform.pipeline.event_checks import check_arrival, check_snapshots, check_values
from cdc_platform.pipeline.evolve import between_positions
from cdc_platform.pipeline.file_checks import check_files
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.reported import remembered_from, repeated_from
from cdc_platform.pipeline.source_checks import check_schema, check_source
from cdc_platform.pipeline.table_checks import check_fold, check_histories, check_keys
from cdc_platform.pipeline.verdict import EVERYTHING, Check, Scope, Verdict
from cdc_platform.spark.event_order import RECORD_ID
from cdc_platform.spark.repeats import seconds_before

_IDENTITY: Final = ("record_id", "mod_ordinal")
"""What tells a change of the log from every other one."""


def check_nothing_lost(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> Verdict:
    """Compare the records read with those in the log and in quarantine."""
    until = read_mark(pipeline.lake.system_table(LOG)).position_micros or 0
    raw = spark.table(pipeline.lake.spark_system_table(RAW)).where(
        (F.col("kind") == RecordKind.DATA_CHANGE.value)
        & (F.col("record_timestamp") <= F.lit(to_datetime(until)))
    )
    if scope.after_micros is not None:
        raw = raw.where(F.col("record_timestamp") > F.lit(to_datetime(scope.after_micros)))
    read = raw.select(F.expr(RECORD_ID).alias("record_id"))
    # What comes again was logged before, and what is replayed is logged later.
    repeats_within_s, has_late = pipeline.traits.repeats_within_s, has_replays(pipeline.lake)
    around = EVERYTHING if repeats_within_s is not None or has_late else scope
    held = _quarantine(pipeline, spark, around)
    logged = _log(pipeline, spark, around)
    if repeats_within_s is not None and scope.after_micros is not None and not has_late:
        repeated = repeated_from(pipeline, between_positions(RecordKind.FILE, scope.after_micros, until))
        oldest = remembered_from(pipeline, scope.after_micros, repeated)
        logged = logged.where(F.col("commit_timestamp") >= F.lit(to_datetime(oldest)))
    places = {
        "read": read,
        "logged": logged.select("record_id"),
        "held": held.where("replayed_at is null").select("record_id"),
        "replayed": held.where("replayed_at is not null").select("record_id"),
    }
    if around is not scope:
        asked = read.distinct()
        places |= {
            name: places[name].join(asked, "record_id", "left_semi") for name in places if name != "read"
        }
    comes_mended = pipeline.traits.hands_out_events
    total, distinct, in_log, in_quarantine, lost = _count_places(places, comes_mended=comes_mended)
    return Verdict(
        passed=lost == 0 and distinct == in_log + in_quarantine,
        summary=f"{total} records read = {in_log} in the log + {total - distinct} duplicates "
        f"+ {in_quarantine} in quarantine, {lost} lost",
        facts={
            "records_read": total,
            "records_in_log": in_log,
            "duplicates": total - distinct,
            "quarantined": in_quarantine,
            "lost": lost,
        },
    )


def _count_places(places: Mapping[str, DataFrame], *, comes_mended: bool) -> tuple[int, ...]:
    """Return how many records were read, with and without duplicates, are in the log, held, and neither.

    What was replayed is held as long as the log does not have it, be it under another identity. What
    ``comes_mended``, in a file that was written anew, is in the log, though nobody has replayed it.
    """
    marked = [
        found.select("record_id", *(F.lit(int(name == other)).alias(other) for other in places))
        for name, found in places.items()
    ]
    records = reduce(DataFrame.unionByName, marked).groupBy("record_id")
    read, logged, held, replayed = (F.col(name) for name in places)
    is_open = (held > 0) & (logged == 0) if comes_mended else held > 0
    is_held = is_open | (replayed > 0) & (logged == 0)
    return _first(
        records.agg(*(F.sum(name).alias(name) for name in places)).agg(
            F.sum(read),
            F.count_if(read > 0),
            F.count_if(logged > 0),
            F.count_if(is_held),
            F.count_if((read > 0) & (logged == 0) & ~is_held),
        )
    )


def _first(frame: DataFrame) -> tuple[int, ...]:
    """Return the only row of a frame of numbers; the sum of no row is 0."""
    return tuple(int(number or 0) for number in frame.collect()[0])


def check_exactly_once(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> Verdict:
    """Count changes that the log holds more than once."""
    changes = _log(pipeline, spark, scope)
    times = changes.groupBy(*_IDENTITY).count()
    total, repeated = _first(times.agg(F.sum("count"), F.count_if(F.col("count") > 1)))
    within_s = pipeline.traits.repeats_within_s
    if repeated and within_s is not None:
        repeated = _count_soon(changes.join(times.where("count > 1"), list(_IDENTITY), "left_semi"), within_s)
    return Verdict(
        repeated == 0,
        f"{total} changes, {repeated} of them repeated",
        {"changes": total, "repeated": repeated},
    )


def _count_soon(changes: DataFrame, within_s: float) -> int:
    """Count what came again within the time for which it is recognised; what comes later changes no row."""
    before = F.lag("commit_timestamp").over(Window.partitionBy(*_IDENTITY).orderBy("commit_timestamp"))
    is_soon = before >= seconds_before("commit_timestamp", within_s)
    soon = changes.select(*_IDENTITY, is_soon.alias("is_soon")).where("is_soon")
    return soon.select(*_IDENTITY).distinct().count()


def check_transactions(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> Verdict:
    """Look for transactions that are cut, spread, or out of commit order."""
    changes = _log(pipeline, spark, scope)
    by_transaction = changes.groupBy("commit_timestamp", "transaction_id").agg(
        F.count_distinct("record_id").alias("seen"),
        F.max("records_in_transaction").alias("announced"),
        F.count_distinct("tick").alias("ticks"),
    )
    is_cut_up = (F.col("seen") != F.col("announced")) | (F.col("ticks") != 1)
    total, cut_up = _first(by_transaction.agg(F.count("*"), F.count_if(is_cut_up)))
    in_tick = Window.partitionBy("tick").orderBy("ordinal")
    displaced = (
        changes.select("order_key", F.lag("order_key").over(in_tick).alias("before"))
        .where(F.col("order_key") <= F.col("before"))
        .count()
    )
    if has_replays(pipeline.lake):
        # What is replayed keeps its commit timestamp.
        replayed = spark.createDataFrame(replayed_records(pipeline.lake)).distinct()
        changes = changes.join(replayed, "record_id", "left_anti")
    overlapping = _count_overlaps(changes)
    return Verdict(
        cut_up == 0 and displaced == 0 and overlapping == 0,
        f"{total} transactions, {cut_up} not whole, {displaced + overlapping} changes out of order",
        {"transactions": total, "not_whole": cut_up, "out_of_order": displaced + overlapping},
    )


def _count_overlaps(changes: DataFrame) -> int:
    """Count neighbouring ticks whose ordinals or commit timestamps overlap."""
    ticks = changes.groupBy("tick").agg(
        F.min("ordinal"), F.max("ordinal"), F.min("commit_timestamp"), F.max("commit_timestamp")
    )
    rows = sorted(tuple(row) for row in ticks.collect())
    return sum(later[1] <= earlier[2] or later[3] <= earlier[4] for earlier, later in pairwise(rows))


def check_lineage(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> Verdict:
    """Look for partitions that finished without children, or started before their parents finished."""
    lineage = load_lineage(pipeline.lake)
    found = violations(lineage) if lineage is not None else []
    partitions = len(lineage.partitions) if lineage is not None else 0
    return Verdict(
        not found,
        "; ".join(found[:5]) or f"{partitions} partitions, each started once, after all its parents",
        {"partitions": partitions, "violations": len(found)},
    )


def check_alive(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> Verdict:
    """Look for partitions of which the source sent nothing in the newest tick, though it was asked twice."""
    stuck = load_stuck(pipeline.lake)
    return Verdict(
        not stuck,
        "; ".join(found.describe() for found in stuck) or "every partition that was read has answered",
        {"stuck": len(stuck), "longest_s": max((found.age_s for found in stuck), default=0.0)},
    )


def check_watermark(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> Verdict:
    """Look for a watermark that went back, or that passed a partition which has not been read so far."""
    log = pipeline.lake.system_table(LOG)
    history = [
        int(position)
        for snapshot in ancestors_of(log, head(log))
        if (position := fact(snapshot, POSITION)) is not None
    ]
    positions = [cut.position_micros for cut in list_cuts(pipeline.lake)]
    back = sum(newer < older for newer, older in pairwise(history))
    back += sum(newer < older for older, newer in pairwise(positions))
    lineage = load_lineage(pipeline.lake)
    held = watermark_micros(lineage) if lineage is not None else None
    passed_it = bool(held is not None and history and history[0] > held)
    return Verdict(
        back == 0 and not passed_it,
        f"{len(history)} watermarks and {len(positions)} cuts, {back} went back"
        + (", and the log is ahead of an unread partition" if passed_it else ""),
        {"watermarks": len(history), "cuts": len(positions), "went_back": back},
    )


def _log(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> DataFrame:
    return spark.table(pipeline.lake.spark_system_table(LOG)).where(F.col("tick") > scope.after_tick)


def _quarantine(pipeline: Pipeline, spark: SparkSession, scope: Scope) -> DataFrame:
    held = spark.table(pipeline.lake.spark_system_table(QUARANTINED))
    return held.where(F.col("tick") > scope.after_tick)


def checks_of(traits: SourceTraits) -> tuple[Check, ...]:
    """Return the checks that make sense for a source."""
    return tuple(check for check in CHECKS if check.applies(traits))


CHECKS: tuple[Check, ...] = (
    Check(
        "nothing_lost",
        "change_log",
        "Records read = records in the log + recognised duplicates + quarantine.",
        every_tick=True,
        run=check_nothing_lost,
    ),
    Check(
        "exactly_once",
        "change_log",
        "Every change is in the log once, whatever was retried, sent again or killed.",
        every_tick=True,
        run=check_exactly_once,
    ),
    Check(
        "transactions_whole",
        "change_log",
        "Every transaction is in the log whole, in commit order.",
        every_tick=True,
        run=check_transactions,
        applies=lambda traits: traits.keeps_transactions and not traits.hands_out_events,
    ),
    Check(
        "transactions_arrive",
        "change_log",
        "Every transaction has come whole. A warning names the one that holds back what comes after it, with "
        "how much of it has come.",
        every_tick=True,
        run=check_arrival,
        applies=lambda traits: traits.keeps_transactions and traits.hands_out_events,
        is_warning=True,
    ),
    Check(
        "values_resolved",
        "change_log",
        "Every value that the source did not send is known from before. A warning tells which are not, and "
        "what else events leave in doubt.",
        every_tick=False,
        run=check_values,
        applies=lambda traits: traits.leaves_values_out,
        is_warning=True,
    ),
    Check(
        "snapshots_agree",
        "change_log",
        "Every row is in the newest snapshot of its table, or has been changed since. A warning counts rows "
        "that a repeated snapshot does not have.",
        every_tick=False,
        run=check_snapshots,
        applies=lambda traits: traits.leaves_values_out and traits.comes_in_order,
        is_warning=True,
    ),
    Check(
        "lineage_sound",
        "partition_lineage",
        "A finished partition has children; a child starts once, after all its parents finished.",
        every_tick=True,
        run=check_lineage,
    ),
    Check(
        "files_readable",
        "partition_lineage",
        "Every file that there is could be read. A warning names those that could not, why, and when they "
        "are tried again; the others are read all the same.",
        every_tick=True,
        run=check_files,
        applies=lambda traits: traits.hands_out_events,
        is_warning=True,
    ),
    Check(
        "partitions_alive",
        "partition_lineage",
        "No partition is stuck: each sends records or heartbeats when it is asked. A warning names the one "
        "that does not, with its age; it holds the watermark and is asked again with every tick.",
        every_tick=True,
        run=check_alive,
        applies=lambda traits: not traits.hands_out_events,
        is_warning=True,
    ),
    Check(
        "watermark_monotone",
        "change_log",
        "The watermark never goes back, and a partition that is known but not read holds it.",
        every_tick=True,
        run=check_watermark,
    ),
    Check(
        "tables_equal_log",
        "cut",
        "Every table at the newest cut equals its initial copy and the fold of the log up to the cut.",
        every_tick=False,
        run=check_fold,
    ),
    Check(
        "keys_unique",
        "cut",
        "Every table at the newest cut has one row for each of its keys.",
        every_tick=False,
        run=check_keys,
    ),
    Check(
        "histories_sound",
        "cut",
        "The versions of a row follow each other, the current ones are the table, and all are in the log.",
        every_tick=False,
        run=check_histories,
    ),
    Check(
        "tables_equal_source",
        "cut",
        "Every table at the newest cut equals a strong read of the source at its position.",
        every_tick=False,
        run=check_source,
        applies=lambda traits: traits.can_be_compared,
    ),
    Check(
        "schema_changes",
        "cut",
        "The source's schema has not changed, and nothing of it is left out: a warning tells "
        "what changed, and what keeps tables from equalling the source.",
        every_tick=True,
        run=check_schema,
        is_warning=True,
    ),
)
