"""Sorting over several tasks."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.model.base.schemas import TIMESTAMP
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.spark.frames.ranges import ROWS_PER_RANGE, part_in_ranges, range_starts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, SECOND = 1_800_000_000_000_000, 1_800_000_000_000_001
TEXTS: Final = ("", "'", "''", '"', "\\", "\\'", "a", "a\nb", "ä", "\U0001f600", "￿", "$1", "b")
ORDER: Final = ("moment", "place", "number")


@pytest.mark.parametrize(
    ("expected", "sampled", "ranges"),
    [
        ([(1, "aa"), (2, "a")], [(2, "b"), (1, "a"), (2, "a"), (1, "b"), (0, "z"), (1, "aa")], 3),
        ([], [(1, "a")], 1),
        ([], [], 3),
        ([(1, "a"), (1, "a")], [(1, "a")], 3),
    ],
    ids=["even", "one range", "no row", "fewer rows than ranges"],
)
def test_ranges_start_where_the_sample_says(
    expected: list[OrderPlace], sampled: Sequence[OrderPlace], ranges: int
) -> None:
    """Ranges start at places of the sample, in order, each after an equal share of it."""
    assert expected == range_starts(sampled, ranges)


@pytest.mark.integration
@pytest.mark.usefixtures("many_tasks")
def test_ranges_sort_as_one_task_does(spark: "SparkSession") -> None:
    """For any texts, several tasks together have all rows in the order of their bytes."""
    places = [(micros, text, number) for micros in (SECOND, FIRST) for text in TEXTS for number in (1, 0)]
    moments, texts, numbers = zip(*places, strict=True)
    kinds = [pa.array(moments, pa.int64()).cast(TIMESTAMP), pa.array(texts), pa.array(numbers)]
    frame = spark.createDataFrame(pa.table(kinds, names=ORDER)).repartition(3)
    parted = part_in_ranges(frame, ORDER, [place[:2] for place in places], 3 * ROWS_PER_RANGE)
    actual = parted.sortWithinPartitions(*ORDER)
    rows = actual.selectExpr(f"unix_micros({ORDER[0]})", *ORDER[1:], "spark_partition_id()").collect()
    in_order = sorted(places, key=lambda row: (row[0], row[1].encode(), row[2]))
    assert in_order == [tuple(row[:3]) for row in rows]
    assert {0, 1, 2} == {row[3] for row in rows}


@pytest.mark.integration
@pytest.mark.usefixtures("many_tasks")
def test_a_sample_without_rows_makes_one_range(spark: "SparkSession") -> None:
    """Without known places, one task sorts them all."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame([(moment, text, 0) for text in "cab"], ORDER)
    parted = part_in_ranges(frame, ORDER, [], 3 * ROWS_PER_RANGE)
    rows = parted.sortWithinPartitions(*ORDER).collect()
    assert [row["place"] for row in rows] == ["a", "b", "c"]
