"""Changes of selected rows, with the truncates of their tables."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.rows.resolution import RowId
from cdc_platform.model.stream.records import ChangeKind

ROW_ID: Final = ("table_name", "keys")
IS_TRUNCATE: Final = f"change_kind = '{ChangeKind.TRUNCATE.value}'"
_IDS: Final = pa.schema([(name, pa.string()) for name in ROW_ID])
_KEY_CHAINS: Final = pa.schema(
    [*((name, pa.string()) for name in (*ROW_ID, "key_chain")), ("is_logged", pa.bool_())]
)


def ids_frame(spark: SparkSession, ids: Iterable[RowId]) -> DataFrame:
    """Return rows' ids as `table_name` and `keys`, broadcast to every task."""
    names, keys = [], []
    for name, key in sorted(ids):
        names.append(name)
        keys.append(key)
    return F.broadcast(spark.createDataFrame(pa.table([names, keys], schema=_IDS)))


def key_chains_frame(
    spark: SparkSession, chains: Mapping[RowId, str], logged: Collection[RowId]
) -> DataFrame:
    """Return rows' ids with their key chains as `key_chain`, and as `is_logged`; broadcast to every task.

    Args:
        spark: Spark session.
        chains: the rows' key chains.
        logged: the rows that are followed from the log.
    """
    rows = [(*row_id, chains[row_id], row_id in logged) for row_id in sorted(chains)]
    columns = list(zip(*rows, strict=True)) or [()] * len(_KEY_CHAINS)
    return F.broadcast(spark.createDataFrame(pa.table(list(map(list, columns)), schema=_KEY_CHAINS)))


def changes_of(log: DataFrame, ids: DataFrame, tables: Collection[str]) -> DataFrame:
    """Return the changes of some rows, and the truncates of their tables.

    Args:
        log: changes.
        ids: distinct `table_name` and `keys`.
        tables: the tables of these.
    """
    marked = log.join(ids.withColumn("is_chosen", F.lit(True)), list(ROW_ID), "left")
    is_truncate = F.expr(IS_TRUNCATE) & F.col("table_name").isin(*tables)
    return marked.where(F.col("is_chosen") | is_truncate).select(*log.columns)
