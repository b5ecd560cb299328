"""Comparison of frames that should have the same rows."""

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.base.names import quote_spark

MORE: Final = "__more"
"""Column with the number of additional copies of a row in the left frame."""


def count_differing(left: DataFrame, right: DataFrame) -> int:
    """Return the number of rows that are in only one of two frames; duplicates count separately.

    Both have the same columns in the same order. Each is computed only once, unlike with two `exceptAll`.
    """
    names = [F.col(quote_spark(name)) for name in left.columns]
    signed = [frame.select("*", F.lit(sign).alias(MORE)) for frame, sign in ((left, 1), (right, -1))]
    sums = reduce(DataFrame.union, signed).groupBy(*names).agg(F.sum(MORE).alias(MORE))
    ((differing,),) = sums.agg(F.coalesce(F.sum(F.abs(MORE)), F.lit(0))).collect()
    return int(differing)
