"""Frames are compared row by row, in any order."""

from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.pipeline.checks.history_check import count_differing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = "`the key` INT, value DOUBLE, tags ARRAY<STRING>"
NAN: Final = float("nan")
Row = tuple[int, float | None, list[str | None] | None]
ONE: Final[Row] = (1, 0.0, ["a", None])
TWO: Final[Row] = (2, NAN, None)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([], [], 0),
        ([ONE, TWO], [(2, NAN, None), (1, -0.0, ["a", None])], 0),  # as a key of Spark's, -0.0 is 0.0
        ([ONE, TWO], [ONE], 1),
        ([ONE], [(1, 0.0, ["a"])], 2),  # another value is a row less and a row more
        ([ONE, ONE, ONE], [ONE], 2),
        ([(1, None, None)], [(1, 0.0, None)], 2),  # null is not a value
    ],
)
def test_rows_that_only_one_frame_has_are_counted(
    spark: "SparkSession", left: list[Row], right: list[Row], expected: int
) -> None:
    """Order does not matter, the number of repetitions does, and null and NaN equal themselves."""
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in (left, right)]
    assert expected == count_differing(*frames)
    assert expected == count_differing(*reversed(frames))
