"""Removal of duplicate records, in the same window or from earlier cycles."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.spark.session.session_settings import PLANNED_ONCE, changed_settings

IDENTITY: Final = ("server_transaction_id", "record_sequence")
"""Columns that duplicates of an event share."""
RECORD_ID: Final = f"concat_ws('/', {', '.join(IDENTITY)})"
_IS_REPEATED: Final = "is_repeated"


class Repeats(NamedTuple):
    """Events of a window that are not new, and the number of its transactions.

    ``among_them`` means that some event is several times in the window, and ``in_log`` that the log may have
    one of them.
    """

    among_them: bool
    in_log: bool
    transactions: int


UNKNOWN_REPEATS: Final = Repeats(among_them=True, in_log=True, transactions=0)
"""That each event may come again."""


def distinct_rows(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return one row for each value of some columns, without the aggregates of `dropDuplicates`.

    The rows are sorted by these columns. If they are already partitioned by some of them, and sorted further
    by the same columns, this sort is the only work.
    """
    rows = f"partition by {', '.join(columns)} order by {columns[-1]}"
    flagged_rows = frame.withColumn(_IS_REPEATED, F.expr(f"lag(1) over ({rows}) is not null"))
    return flagged_rows.where(f"not {_IS_REPEATED}").drop(_IS_REPEATED)


def seconds_before(moment: str, seconds: float) -> Column:
    """Return the time this many seconds before that of a column."""
    return F.expr(f"{moment} - make_dt_interval(0, 0, 0, {seconds:f})")


def without_repeated(
    records: DataFrame,
    log: DataFrame,
    capabilities: SourceCapabilities,
    replayed_origins: Collection[str] = (),
    repeated_from: int | None = None,
) -> DataFrame:
    """Return the records whose events are new to the log within the time in which they may come again.

    Args:
        records: raw records of an event source.
        log: the change log.
        capabilities: those of the source; `repeats_within_s` is that time, before each record's cycle.
        replayed_origins: origins with requested replays, whose events may come again at any time.
        repeated_from: earlier time in microseconds from which on events may come again.
    """
    window = seconds_before("record_timestamp", capabilities.repeats_within_s or 0)
    in_log = log.select(F.col("record_id").alias("logged_id"), F.col("commit_timestamp").alias("logged_at"))
    is_due = F.col("logged_at") >= window
    if repeated_from is not None:
        is_due = is_due | (F.col("logged_at") >= F.lit(to_datetime(repeated_from)))
    if replayed_origins:
        is_due = is_due | F.col("event.origin").isin(*sorted(replayed_origins))
    is_same = (F.expr(RECORD_ID) == F.col("logged_id")) & is_due
    return records.join(in_log, is_same, "left_anti")


def find_repeats(records: DataFrame, log: DataFrame | None, tasks: int) -> Repeats:
    """Return whether events come again, from one query on few columns.

    Most windows have no duplicates, and then full records need no shuffle and no join with the log. Digests
    suffice: a collision only costs these, or hides a transaction from a statistic.

    Args:
        records: many raw records of an event source.
        log: the changes of the log that they may equal; None if there are none.
        tasks: number of tasks. Spark would count so few bytes in one.
    """
    ids = records.selectExpr(
        "xxhash64(server_transaction_id) AS transaction", f"xxhash64({RECORD_ID}) AS id", "1 AS is_new"
    )
    if log is not None:
        ids = ids.unionAll(
            log.selectExpr(
                "xxhash64(transaction_id) AS transaction", "xxhash64(record_id) AS id", "0 AS is_new"
            )
        )
    events = ids.repartition(tasks, "transaction")
    by_id = events.groupBy("transaction", "id").agg(F.expr("sum(is_new) AS new"), F.expr("count(*) AS all"))
    by_transaction = by_id.groupBy("transaction").agg(
        F.expr("max(new) AS most"), F.expr("bool_or(new > 0 AND all > new) AS is_logged")
    )
    repeats = by_transaction.selectExpr(
        "max(most) > 1 AS among_them", "bool_or(is_logged) AS in_log", "count_if(most > 0) AS transactions"
    )
    with changed_settings(records.sparkSession, PLANNED_ONCE):
        row = repeats.collect()[0]
    return Repeats(bool(row["among_them"]), bool(row["in_log"]), row["transactions"])
