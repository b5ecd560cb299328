"""Names of columns as Spark compares them."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.model.base.names import case_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOTTED = {("adi", "adi\u0307"), ("\u0130", "i\u0307")}
"""Pairs that only a comparison in lower case takes for one, with what else it takes for one."""
PAIRS = (
    *(("adi", "ad\u0131"), ("adi", "AD\u0130"), *DOTTED),
    *(("\u03c3", "\u03c2"), ("\u03c3", "\u03a3"), ("s", "\u017f"), ("k", "\u212a"), ("\u00b5", "\u03bc")),
    *(("stra\u00dfe", "STRA\u1e9eE"), ("stra\u00dfe", "strasse"), ("\ufb01", "fi"), ("\u1f80", "\u1f88")),
    *(("\U00010400", "\U00010428"), ("a", "b")),
)


@pytest.mark.integration
def test_names_are_one_column_where_spark_says_so(spark: "SparkSession") -> None:
    """Spark refuses the second column of pairs that share their key, but for a few, and takes all others."""
    from pyspark.errors import AnalysisException

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.names")
    refused = set()
    for number, (first, second) in enumerate(PAIRS):
        table = f"lake.names.t{number}"
        spark.sql(f"CREATE TABLE {table} (`{first}` INT) USING iceberg")
        try:
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS (`{second}` INT)")
        except AnalysisException:
            refused.add((first, second))
    assert {pair for pair in PAIRS if case_key(pair[0]) == case_key(pair[1])} - DOTTED == refused
