"""Comparing frames that should have the same rows."""

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.base.names import quote_spark

MORE: Final = "__more"
"""Number of times that the left frame has a row more often than the right one."""


def count_differing(left: DataFrame, right: DataFrame) -> int:
    """Return how many rows two frames do not have in common; one that is there twice counts twice.

    Both have the same columns in the same order. Each is computed once, which two `exceptAll` would not do.
    """
    names = [F.col(quote_spark(name)) for name in left.columns]
    signed = [frame.select("*", F.lit(sign).alias(MORE)) for frame, sign in ((left, 1), (right, -1))]
    sums = reduce(DataFrame.union, signed).groupBy(*names).agg(F.sum(MORE).alias(MORE))
    ((differing,),) = sums.agg(F.coalesce(F.sum(F.abs(MORE)), F.lit(0))).collect()
    return int(differing)
