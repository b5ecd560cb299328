"""Removal of duplicate records, in the same window or from earlier cycles."""

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.source_capabilities import SourceCapabilities

IDENTITY: Final = ("server_transaction_id", "record_sequence")
"""Columns that duplicates of an event share."""
RECORD_ID: Final = f"concat_ws('/', {', '.join(IDENTITY)})"
_IS_REPEATED: Final = "is_repeated"


def distinct_rows(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return one row for each value of some columns, without the aggregates of `dropDuplicates`.

    The rows are sorted by these columns. If they are already partitioned by some of them, and sorted further
    by the same columns, this sort is the only work.
    """
    rows = f"partition by {', '.join(columns)} order by {columns[-1]}"
    marked = frame.withColumn(_IS_REPEATED, F.expr(f"lag(1) over ({rows}) is not null"))
    return marked.where(f"not {_IS_REPEATED}").drop(_IS_REPEATED)


def seconds_before(moment: str, seconds: float) -> Column:
    """Return the time this many seconds before that of a column."""
    return F.expr(f"{moment} - make_dt_interval(0, 0, 0, {seconds:f})")


def without_repeated(
    records: DataFrame,
    log: DataFrame,
    capabilities: SourceCapabilities,
    replayed: Collection[str] = (),
    repeated_from: int | None = None,
    *,
    is_small: bool = True,
) -> DataFrame:
    """Return the records whose events are new to the log within the time in which they may come again.

    Args:
        records: raw records of an event source.
        log: the change log.
        capabilities: those of the source; `repeats_within_s` is that time, before each record's cycle.
        replayed: origins with requested replays, whose events may come again at any time.
        repeated_from: earlier time in microseconds from which on events may come again.
        is_small: whether there are few records. For many records, a first query on few columns finds out
            whether any came again: usually none did, and then full records need no join with the log.
    """
    window = seconds_before("record_timestamp", capabilities.repeats_within_s or 0)
    in_log = log.select(F.col("record_id").alias("logged_id"), F.col("commit_timestamp").alias("logged_at"))
    is_due = F.col("logged_at") >= window
    if repeated_from is not None:
        is_due = is_due | (F.col("logged_at") >= F.lit(to_datetime(repeated_from)))
    if replayed:
        is_due = is_due | F.col("event.origin").isin(*sorted(replayed))
    is_same = (F.expr(RECORD_ID) == F.col("logged_id")) & is_due
    if not is_small:
        ids = records.selectExpr(*IDENTITY, "record_timestamp", "struct(event.origin) as event")
        if ids.join(in_log, is_same, "left_semi").isEmpty():
            return records
    return records.join(in_log, is_same, "left_anti")
