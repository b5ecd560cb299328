"""Conversion of raw data change records to changes in the total order of the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.ordering_key import COMMIT_DIGITS, MOD_ORDINAL_DIGITS, SEPARATOR
from cdc_platform.model.stream.records import WHOLE_ROW_UPDATES, ChangeKind
from cdc_platform.spark.frames.ranges import RANGE, ROWS_PER_RANGE, part_in_ranges
from cdc_platform.spark.log.faults import FAULT, FITS, fault_of, parsed_mods
from cdc_platform.spark.log.repeats import distinct_rows

SINGLE_TASK_RECORDS = ROWS_PER_RANGE
"""Up to this many records, one task orders them: they fit one range of a distributed sort."""

TRANSACTION = ("record_timestamp", "server_transaction_id")
COMMIT_ORDER = ("commit_timestamp", "transaction_id", "record_order", "mod_ordinal")
RECORD_PARTS: Final = (
    "cast(null as string) as previous_keys",
    "cast(null as array<string>) as unavailable_columns",
    "cast(null as string) as origin",
)
"""Columns that a change stream does not have."""
CHANGE_KIND: Final = f"translate(mod_type, '{ascii_uppercase}', '{ascii_lowercase}')"
"""SQL of a record's operation as a kind of change.

The first `lower` of a process takes 0.7 s of processor time: Spark then asks ICU for the title case of every
character of Unicode.
"""
IS_TRUNCATE: Final = f"change_kind = '{ChangeKind.TRUNCATE.value}'"
IS_DELETE: Final = f"change_kind = '{ChangeKind.DELETE.value}'"
UNSOUND = "unsound"
COMPANY = "another record of its transaction is in quarantine"
"""Reason for a record without its own fault."""
BEGINS = "begins_transaction"
MOD: Final = ("position", "mod")

_OF_RECORD = (
    *(FAULT, "partition_token", "commit_timestamp", "transaction_id", "table_name", "record", "origin"),
    "ordering_key",
)
_MOD_PARTS = ("mod_ordinal", "change_kind", "keys", "new_values", "old_values", "is_whole_row")
_RECORD = "coalesce(record, to_json(struct(ordering_key)))"
_ARRIVED_MODS = (
    "transform(filter(mods, m -> coalesce(m.keys, m.new_values, m.old_values) is not null),"
    " m -> named_struct('keys', m.keys, 'new_values', m.new_values, 'old_values', m.old_values))"
)
_MODS = f"if(record is null, to_json(struct(mods)), to_json(named_struct('mods', {_ARRIVED_MODS})))"
_RECORD_TEXT = f"concat(left({_RECORD}, length({_RECORD}) - 1), ',', substr({_MODS}, 2))"
"""SQL of the text of a record in quarantine: as it arrived if it is faulty, else its place and changes."""

_WHOLE_ROW_UPDATES = ", ".join(f"'{capture}'" for capture in WHOLE_ROW_UPDATES)
IS_WHOLE_ROW = (
    f"coalesce(mod_type in ('INSERT', 'DELETE') or value_capture_type in ({_WHOLE_ROW_UPDATES}), false)"
)


@dataclass(frozen=True, order=True)
class Incomplete:
    """A transaction whose records have not all arrived."""

    transaction_id: str
    expected: int
    seen: int


@dataclass(frozen=True)
class TableStats:
    """A table's changes in a cycle: changes, partial updates, truncates, time of the first commit."""

    changes: int
    partial_updates: int
    truncates: int = 0
    first_micros: int = 0


@dataclass(frozen=True)
class LogStats:
    """Contents of one window of records before it is committed."""

    tables: dict[str, TableStats]
    transactions: int
    quarantined: int
    next_ordinal: int
    incomplete: Incomplete | None

    @property
    def changes(self) -> int:
        """Changes of all tables."""
        return sum(table.changes for table in self.tables.values())

    def with_further(self, partial_updates: Mapping[str, int]) -> "LogStats":
        """Return the same contents with further partial updates, by table; their number may be negative."""
        tables = {
            name: replace(table, partial_updates=table.partial_updates + partial_updates.get(name, 0))
            for name, table in self.tables.items()
        }
        return replace(self, tables=tables)


class OrderedChanges(NamedTuple):
    """Changes in the order of the log; `stats` if it is known that all of them enter it unchanged."""

    frame: DataFrame
    stats: LogStats | None = None


def order_records(
    records: DataFrame,
    first_ordinal: int,
    expected_records: int,
    tables: Sequence[TableSchema] = (),
    places: Sequence[OrderPlace] = (),
) -> DataFrame:
    """Return one row per change, in the order of the log, with columns that decide whether it may enter it.

    Args:
        records: data change records of RAW_CHANGE_RECORDS between two watermarks.
        first_ordinal: first available ordinal.
        expected_records: approximate number of records, which determines the number of tasks.
        tables: current source tables; values of other tables are not checked.
        places: commit times and transactions of some of these records.

    Returns:
        the columns of CHANGE_LOG without `cycle`, and `records_seen`, `fault` (why the change is invalid),
        `unsound` (whether its transaction has an invalid change), `begins_transaction` (whether it is the
        first one), `record` (its other raw columns as JSON, for faults) and `origin`, which is null.
    """
    # Otherwise each mod would carry all mods of its record.
    mods = records.select("*", F.posexplode_outer("mods").alias(*MOD)).drop("mods")
    changes = changes_of(mods, fault_of(tables), RECORD_PARTS)
    order: Sequence[str] = COMMIT_ORDER
    spare = "record_order"
    if expected_records <= SINGLE_TASK_RECORDS:
        changes = changes.coalesce(1)
    else:
        changes, order = part_in_ranges(changes, order, places, expected_records), (RANGE, *order)
        spare += f", {RANGE}"
    # One sort serves duplicates, windows and order.
    judgements = _judge(distinct_rows(changes, order), order[:-2]).sortWithinPartitions(*order)
    ordinal = f"monotonically_increasing_id() + {first_ordinal} AS ordinal"
    return judgements.selectExpr(f"* EXCEPT ({spare})", ordinal)


def changes_of(mods: DataFrame, fault: str, parts: Sequence[str], condition: str = "true") -> DataFrame:
    """Return one change per mod, with its fault.

    Args:
        mods: raw data change records, each row with one of its mods in the columns MOD.
        fault: SQL of the reason why a mod is invalid.
        parts: SQL of the columns that differ between change streams and events.
        condition: condition of the records whose values are parsed for the fault.
    """
    changes = mods.selectExpr("*", *parsed_mods(condition), f"{fault} AS {FAULT}")
    raw_columns = ", ".join(name for name in mods.columns if name not in (FITS, "mods", *MOD))
    # SQL texts: an expression built here would cost a few calls of Spark's JVM.
    return changes.selectExpr(
        "table_name",
        f"{CHANGE_KIND} as change_kind",
        "record_timestamp as commit_timestamp",
        "server_transaction_id as transaction_id",
        "concat_ws('/', server_transaction_id, record_sequence) as record_id",
        "coalesce(position, 0) as mod_ordinal",
        "number_of_records_in_transaction as records_in_transaction",
        "partition_token",
        "mod.keys as keys",
        *parts,
        "mod.new_values as new_values",
        "mod.old_values as old_values",
        f"{IS_WHOLE_ROW} as is_whole_row",
        "is_system_transaction",
        "transaction_tag",
        "record_order",
        f"if({FAULT} is not null, to_json(struct({raw_columns})), null) as record",
        FAULT,
    )


def _judge(changes: DataFrame, parts: Sequence[str]) -> DataFrame:
    transaction = f"partition by {', '.join(parts)}"
    ordering_key = (
        f"lpad(cast(unix_micros(commit_timestamp) as string), {COMMIT_DIGITS}, '0')",
        "transaction_id",
        "record_order",
        f"lpad(cast(mod_ordinal as string), {MOD_ORDINAL_DIGITS}, '0')",
    )
    return changes.selectExpr(
        "*",
        f"concat_ws('{SEPARATOR}', {', '.join(ordering_key)}) as ordering_key",
        f"sum(if(mod_ordinal = 0, 1, 0)) over ({transaction}) as records_seen",
        f"max({FAULT} is not null) over ({transaction}) as {UNSOUND}",
        f"mod_ordinal = 0 and record_order = min(record_order) over ({transaction}) as {BEGINS}",
    )


def measure(changes: DataFrame) -> LogStats:
    """Count a window of ordered changes in one Spark job.

    Args:
        changes: the result of `order_records`, preferably persisted.
    """
    sound = ~F.col(UNSOUND)
    is_short = sound & (F.col("records_seen") != F.col("records_in_transaction"))
    short = F.struct("transaction_id", "records_in_transaction", "records_seen")
    of_transactions = {
        "transactions": F.count_if(sound & F.col(BEGINS)),
        "short": F.min(F.when(is_short, short)),
    }
    rows = count_changes(changes, of_transactions)
    shorts = [Incomplete(*row["short"]) for row in rows if row["short"] is not None]
    return to_stats(rows, sum(row["transactions"] for row in rows), shorts[0] if shorts else None)


def count_changes(changes: DataFrame, further: Mapping[str, Column]) -> list[Row]:
    """Return, per table, the aggregates for `to_stats`, and further aggregates by name."""
    sound = ~F.col(UNSOUND)
    counts = {
        "changes": F.count_if(sound),
        "partial_updates": F.count_if(sound & ~F.col("is_whole_row")),
        "truncates": F.count_if(sound & F.expr(IS_TRUNCATE)),
        "quarantined": F.count_if(F.col(UNSOUND) & (F.col("mod_ordinal") == 0)),
        "first_micros": F.min(F.when(sound, F.unix_micros("commit_timestamp"))),
        "last_ordinal": F.max("ordinal"),
        **further,
    }
    aggregates = [column.alias(name) for name, column in counts.items()]
    return changes.groupBy("table_name").agg(*aggregates).collect()


def to_stats(
    rows: Sequence[Row | dict[str, Any]], transactions: int, incomplete: Incomplete | None = None
) -> LogStats:
    """Return the combined counts of all tables."""
    return LogStats(
        tables={
            row["table_name"]: TableStats(
                row["changes"], row["partial_updates"], row["truncates"], row["first_micros"]
            )
            for row in rows
            if row["changes"]
        },
        transactions=transactions,
        quarantined=sum(row["quarantined"] for row in rows),
        next_ordinal=max((row["last_ordinal"] + 1 for row in rows), default=0),
        incomplete=incomplete,
    )


def sound_changes(changes: DataFrame, cycle: int, columns: list[str]) -> DataFrame:
    """Return the rows of the change log of one cycle, in order."""
    names = (f"bigint({cycle}) AS cycle" if name == "cycle" else name for name in columns)
    return changes.where(~F.col(UNSOUND)).selectExpr(*names)


def unsound_records(changes: DataFrame, cycle: int) -> DataFrame:
    """Return the rows of quarantine of one cycle: whole transactions, since the log never has part of one.

    Each record becomes one row, with the reason of its first faulty mod.
    """
    by_mod = F.struct(F.col(FAULT).isNull(), "mod_ordinal")
    parts = (F.min_by(name, by_mod).alias(name) for name in _OF_RECORD)
    mods = F.array_sort(F.collect_list(F.struct(*_MOD_PARTS))).alias("mods")
    records = changes.where(F.col(UNSOUND)).groupBy("record_id").agg(*parts, mods)
    return records.select(
        F.lit(cycle).cast("bigint").alias("cycle"),
        F.coalesce(F.col(FAULT), F.lit(COMPANY)).alias("reason"),
        "partition_token",
        F.col("commit_timestamp").alias("record_timestamp"),
        "transaction_id",
        "record_id",
        "table_name",
        F.expr(_RECORD_TEXT).alias("record"),
        "origin",
        F.lit(None).cast("timestamp").alias("replayed_at"),
        F.lit(None).cast("bigint").alias("replayed_cycle"),
        F.lit(None).cast("string").alias("replayed_from"),
    )
