"""Sorting in several tasks without computing the input twice."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.base.timestamps import OrderPlace

ROWS_PER_RANGE: Final = 50_000

RANGE: Final = "range_number"
"""Column with the number of a row's range."""


def part_in_ranges(
    frame: DataFrame, order: Sequence[str], places: Sequence[OrderPlace], expected_rows: int
) -> DataFrame:
    """Return a frame whose tasks each have one range of an order, without dividing rows of one place.

    Spark's own sort computes its whole input again to find such ranges.

    Args:
        frame: frame to sort.
        order: columns to sort by; the first is a timestamp, the second a text.
        places: the places of some of these rows, by the first two of these columns.
        expected_rows: approximate number of rows, which determines the number of ranges.

    Returns:
        the frame with the column RANGE. Windows over RANGE and further columns need no other exchange.
    """
    ranges = range_count(frame, expected_rows)
    starts = range_starts(places, ranges)
    if not starts:
        # Spark does not regard a constant as a column: windows over it add an exchange that breaks ranges.
        return frame.withColumn(RANGE, F.lit(0)).repartition(1)
    starts_before = _count_starts(order[0], f"coalesce({order[1]}, '')", starts)
    return frame.withColumn(RANGE, F.expr(starts_before)).repartitionById(ranges, RANGE)


def range_count(frame: DataFrame, rows: int) -> int:
    """Return the number of tasks for a frame with about this many rows."""
    limit = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return min(limit, -(-rows // ROWS_PER_RANGE))


def range_starts(sampled: Sequence[OrderPlace], ranges: int) -> list[OrderPlace]:
    """Return the starts of all ranges but the first, so that their shares of the sample are about equal."""
    places = sorted(sampled)
    return [places[number * len(places) // ranges] for number in range(1, ranges) if places]


def _count_starts(moment: str, text: str, starts: Sequence[OrderPlace], before: int = 0) -> str:
    """Return the SQL of a binary search, which Spark compiles, unlike functions over arrays."""
    if not starts:
        return str(before)
    middle = len(starts) // 2
    micros, label = starts[middle]
    start = f"timestamp_micros({micros}L)"
    lies_before = f"{moment} < {start} OR {moment} = {start} AND {text} < {quote_text(label)}"
    less = _count_starts(moment, text, starts[:middle], before)
    more = _count_starts(moment, text, starts[middle + 1 :], before + middle + 1)
    return f"if({lies_before}, {less}, {more})"
