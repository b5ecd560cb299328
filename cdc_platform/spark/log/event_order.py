"""Ordering of event sources' raw records into changes of the log.

An event contains its ordering key and one mod, and its transaction is complete here if its source has any.
So changes are compared only to find duplicates. They are sorted as rows of the log: raw records are wider.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.ordering_key import PLACE_PARTS, SEPARATOR
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.spark.frames.casts import LONGEST_TEXT
from cdc_platform.spark.frames.ranges import RANGE, part_in_ranges, range_count
from cdc_platform.spark.log.faults import FAULT, FITS, fault_of
from cdc_platform.spark.log.keyless import IS_UNNUMBERED
from cdc_platform.spark.log.order import (
    SINGLE_TASK_RECORDS,
    UNSOUND,
    LogStats,
    OrderedChanges,
    TableStats,
    changes_of,
    count_changes,
    to_stats,
)
from cdc_platform.spark.log.repeats import IDENTITY, UNKNOWN_REPEATS, Repeats, distinct_rows

EVENT_PARTS: Final = (
    "event.previous_keys as previous_keys",
    "event.unavailable_columns as unavailable_columns",
    "event.source_timestamp as source_timestamp",
    "event.origin as origin",
)
HALF_FAULT: Final = (
    "it is half of a key change, and the other half is in quarantine: see its reason, and replay both"
)
_PLACE: Final = "place"
_ORDER: Final = ("commit_timestamp", "record_order", "transaction_id", "record_id")
"""Order without equal events, so a recomputation after a lost worker assigns the same numbers."""


@dataclass(frozen=True)
class EventCounts:
    """Counts of a window of ordered changes.

    Args:
        stats: statistics of the changes that enter the log.
        unsound: number of changes that do not.
        unnumbered: number of changes of rows without a key that have no number yet.
        incomplete: number of changes to complete.
    """

    stats: LogStats
    unsound: int
    unnumbered: int
    incomplete: int

    @property
    def are_final(self) -> bool:
        """Whether the changes enter the log unchanged."""
        return not (self.unsound or self.unnumbered or self.incomplete)


class CompletedChanges(NamedTuple):
    """Changes to order, some of which were completed, and by how many each table has more partial updates."""

    frame: DataFrame
    partial_updates: Mapping[str, int]


Order = Callable[[DataFrame], DataFrame]
Completion = Callable[[DataFrame, Order], CompletedChanges | None]
"""Completes changes before they are ordered; None if all changes must be ordered first.

It gets a function that orders some of them as all of them will be.
"""


class WindowFacts(NamedTuple):
    """Facts about the records of a window that are known before Spark reads them.

    ``doubtful`` are the tables with events whose values are checked, each with the column types of its other
    events, whose values fit; None if all events are checked. The other facts matter if there are many
    records: ``places`` are times and ordering keys of some of them, and ``counts`` those of the changes by
    table, if all of them enter the log. These are unchanged except for the values that ``complete`` adds,
    which is None if no change needs it.
    """

    doubtful: Mapping[str, Sequence[str]] | None = None
    places: Sequence[OrderPlace] = ()
    repeats: Repeats = UNKNOWN_REPEATS
    counts: Mapping[str, TableStats] | None = None
    complete: Completion | None = None


def order_events(
    records: DataFrame,
    first_ordinal: int,
    expected_records: int,
    tables: Sequence[TableSchema],
    capabilities: SourceCapabilities,
    facts: WindowFacts = WindowFacts(),  # noqa: B008  it cannot change
) -> OrderedChanges:
    """Return one row per change, in the order of the log, with columns that decide whether it may enter it.

    Args:
        records: data change records of RAW_EVENT_RECORDS between two watermarks.
        first_ordinal: first available ordinal.
        expected_records: approximate number of records, which determines the number of tasks.
        tables: current source tables; values of other tables are not checked, nor those that fit for certain.
        capabilities: capabilities of the source.
        facts: known facts about these records, which save examining them one by one.

    Returns:
        the columns of EVENT_LOG without `cycle`, and `fault` (why the change is invalid), `unsound` (whether
        it must not enter the log), `record` (its other raw columns as JSON, for faults) and `origin` (its
        file or topic).
    """
    is_large, repeats = expected_records > SINGLE_TASK_RECORDS, facts.repeats
    in_ranges = partial(_number_ranges, first_ordinal, facts.places, expected_records)
    if is_large and facts.counts is not None and not repeats.among_them:
        changes = _changes_of(records, "cast(null as string)", "false")
        completion = facts.complete(changes, in_ranges) if facts.complete else CompletedChanges(changes, {})
        if completion is not None:
            # Spark's number of a row begins with that of its task.
            next_ordinal = first_ordinal + (range_count(records, expected_records) << 33)
            stats = LogStats(dict(facts.counts), repeats.transactions, 0, next_ordinal, None)
            return OrderedChanges(in_ranges(completion.frame), stats.with_further(completion.partial_updates))
    doubtful = facts.doubtful
    records = _with_fitting(records if is_large else records.coalesce(1), doubtful)
    doubtful_tables = [table for table in tables if doubtful is None or table.name in doubtful]
    fault = f"coalesce(event.fault, if({FITS}, null, {fault_of(doubtful_tables, capabilities)}))"
    distinct_records = _distinct(records, capabilities) if repeats.among_them else records
    changes = _changes_of(distinct_records, fault)
    return OrderedChanges(in_ranges(changes) if is_large else _number(changes, first_ordinal))


def _changes_of(records: DataFrame, fault: str, condition: str = f"not {FITS}") -> DataFrame:
    """Return one change per record, in no order."""
    mods = records.selectExpr("*", "0 as position", "get(mods, 0) as mod")
    return changes_of(mods, fault, (*EVENT_PARTS, f"{FAULT} IS NOT NULL AS {UNSOUND}"), condition)


def _number_ranges(
    first_ordinal: int, places: Sequence[OrderPlace], expected_records: int, changes: DataFrame
) -> DataFrame:
    return _number(part_in_ranges(changes, _ORDER, places, expected_records), first_ordinal, RANGE)


def _number(changes: DataFrame, first_ordinal: int, *spare: str) -> DataFrame:
    """Return changes, whose tasks are in order, in order, with ordinals, without spare columns."""
    # One call: Spark analyses the whole plan again for each.
    return changes.sortWithinPartitions(*_ORDER).selectExpr(
        f"* EXCEPT ({', '.join(('record_order', *spare))})",
        "record_order AS ordering_key",
        f"monotonically_increasing_id() + {first_ordinal} AS ordinal",
    )


def without_order(ordered: DataFrame) -> DataFrame:
    """Return changes without their ordinals, as they were before they were ordered."""
    return ordered.selectExpr("* EXCEPT (ordering_key, ordinal)", "ordering_key AS record_order")


def _with_fitting(records: DataFrame, doubtful: Mapping[str, Sequence[str]] | None) -> DataFrame:
    """Return records with a flag for fitting values; fitting records lose the columns for quarantine."""
    if doubtful is None:
        return records.withColumn(FITS, F.lit(False))
    branches = " ".join(
        f"WHEN {quote_text(table)} THEN column_types IN ({', '.join(map(quote_text, texts)) or 'NULL'})"
        for table, texts in doubtful.items()
    )
    has_fitting_types = f"CASE table_name {branches} ELSE true END" if branches else "true"
    is_short = " AND ".join(
        f"coalesce(octet_length(mods[0].{part}), 0) < {LONGEST_TEXT}" for part in ("keys", "new_values")
    )
    is_sound = f"event.fault IS NULL AND table_name IS NOT NULL AND {is_short}"
    is_fitting = f"coalesce({is_sound} AND {has_fitting_types}, false)"
    flagged_records = records.withColumn(FITS, F.expr(is_fitting))
    return flagged_records.withColumns(
        {
            "column_types": F.when(~F.col(FITS), F.col("column_types")),
            "event": F.col("event").withField("metadata", F.when(~F.col(FITS), F.col("event.metadata"))),
        }
    )


def _distinct(records: DataFrame, capabilities: SourceCapabilities) -> DataFrame:
    if capabilities.keeps_transactions:
        return distinct_rows(records, IDENTITY)
    # A duplicate that is invalid because of a damaged file must not replace a valid one.
    flagged_records = records.withColumn(FAULT, F.col("event.fault").isNotNull())
    return distinct_rows(flagged_records, (*IDENTITY, FAULT)).drop(FAULT)


def with_whole_transactions(changes: DataFrame) -> DataFrame:
    """Return ordered changes, in which an unsound change makes its whole transaction unsound.

    Args:
        changes: the result of `order_events`, persisted.
    """
    unsound = changes.where(UNSOUND)
    places = unsound.selectExpr("commit_timestamp", "transaction_id", "true as is_broken").distinct()
    matches = changes.join(places, ["commit_timestamp", "transaction_id"], "left")
    return matches.withColumn(UNSOUND, F.expr(f"{UNSOUND} or is_broken is not null")).select(*changes.columns)


def with_whole_key_changes(changes: DataFrame) -> DataFrame:
    """Return ordered changes in which a half of a key change is unsound if the other half is.

    Without transaction metadata, a delete would otherwise remove a row whose insert is in quarantine.

    Args:
        changes: the result of `order_events` of Debezium's events, persisted.
    """
    unsound_changes = changes.where(f"{UNSOUND} and ordering_key <> ''")
    place = F.substring_index("ordering_key", SEPARATOR, PLACE_PARTS)
    broken_places = unsound_changes.select(
        "commit_timestamp", place.alias(_PLACE), F.lit(True).alias("is_broken")
    ).distinct()
    matches = changes.withColumn(_PLACE, place).join(broken_places, ["commit_timestamp", _PLACE], "left")
    is_half = "is_broken and (change_kind = 'delete' or previous_keys is not null)"
    fault = f"coalesce({FAULT}, if({is_half}, {quote_text(HALF_FAULT)}, null))"
    flagged_changes = matches.withColumn(FAULT, F.expr(fault)).withColumn(UNSOUND, F.col(FAULT).isNotNull())
    return flagged_changes.select(*changes.columns)


def count_partial_updates(changes: DataFrame) -> dict[str, int]:
    """Return the number of sound changes of each table that are not whole rows."""
    rows = changes.where(f"not {UNSOUND} and not is_whole_row").groupBy("table_name").count().collect()
    return {row["table_name"]: row["count"] for row in rows}


def further_partial_updates(changes: DataFrame, before: Mapping[str, int]) -> Mapping[str, int]:
    """Return by how many each table has more partial updates than before; the number may be negative."""
    further = Counter(count_partial_updates(changes))
    further.subtract(before)
    return further


def count_events(ordered: DataFrame, incomplete: str = "false") -> EventCounts:
    """Count a window of ordered changes; each change without a transaction counts as one.

    Args:
        ordered: the result of `order_events`, preferably persisted.
        incomplete: SQL condition of the changes to complete.
    """
    conditions = {"unsound": UNSOUND, "unnumbered": IS_UNNUMBERED, "incomplete": incomplete}
    rows = count_changes(ordered, {name: F.count_if(F.expr(sql)) for name, sql in conditions.items()})
    changes = max(1, sum(row["changes"] for row in rows))
    sound = ordered.where(f"not {UNSOUND}").select("transaction_id")
    transactions = sound.repartition(range_count(ordered, changes), "transaction_id").distinct().count()
    return EventCounts(to_stats(rows, transactions), *(sum(row[name] for row in rows) for name in conditions))
