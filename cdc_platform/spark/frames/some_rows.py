"""Changes of some rows only, with the truncates of their tables."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.rows.resolution import RowId

ROW_ID: Final = ("table_name", "keys")
IS_TRUNCATE: Final = f"change_kind = '{ChangeKind.TRUNCATE.value}'"
_IDS: Final = pa.schema([(name, pa.string()) for name in ROW_ID])
_STORIES: Final = pa.schema([(name, pa.string()) for name in (*ROW_ID, "story")])


def ids_frame(spark: SparkSession, ids: Iterable[RowId]) -> DataFrame:
    """Return rows' ids as `table_name` and `keys`, which go to every task whole."""
    names, keys = [], []
    for name, key in sorted(ids):
        names.append(name)
        keys.append(key)
    return F.broadcast(spark.createDataFrame(pa.table([names, keys], schema=_IDS)))


def stories_frame(spark: SparkSession, stories: Mapping[RowId, str]) -> DataFrame:
    """Return rows' ids with the stories that they belong to, as `story`; they go to every task whole."""
    columns = [*zip(*((*row_id, stories[row_id]) for row_id in sorted(stories)), strict=True)]
    return F.broadcast(spark.createDataFrame(pa.table(list(map(list, columns)), schema=_STORIES)))


def changes_of(log: DataFrame, ids: DataFrame, tables: Collection[str]) -> DataFrame:
    """Return the changes of some rows, and the truncates of their tables.

    Args:
        log: changes.
        ids: distinct `table_name` and `keys`.
        tables: the tables of these.
    """
    marked = log.join(ids.withColumn("is_asked", F.lit(True)), list(ROW_ID), "left")
    is_truncate = F.expr(IS_TRUNCATE) & F.col("table_name").isin(*tables)
    return marked.where(F.col("is_asked") | is_truncate).select(*log.columns)
