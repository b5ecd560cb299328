"""Rows that are followed from the log, because the tables do not have their earlier states.

A replay may add changes that are older than those in the log. Without transaction metadata, the halves of a
key change may also come in different cycles: when the second one comes, no table has the row any more.
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.rows.resolution import Link, RowId
from cdc_platform.pipeline.completing.key_chains import CHANGE_COLUMNS, KEY_CHAIN, LOGGED_MICROS, SOURCE_PLACE
from cdc_platform.spark.frames.some_rows import IS_TRUNCATE, ROW_ID

_LINE: Final = (*CHANGE_COLUMNS, f"ordering_key as {SOURCE_PLACE}")


def late_rows(log: DataFrame, changes: DataFrame) -> frozenset[RowId]:
    """Return the rows of changes that are older than one in the log, under the keys before and after.

    Args:
        log: the log without these changes.
        changes: changes that are to enter it.
    """
    own, former = (
        changes.selectExpr("table_name", f"{key} as keys", "ordering_key as placed")
        for key in ("keys", "previous_keys")
    )
    changed_rows = own.union(former).dropna()
    logged = log.select(*ROW_ID, "ordering_key")
    emptied = log.where(IS_TRUNCATE).groupBy("table_name").agg(F.max("ordering_key").alias("ordering_key"))
    later = changed_rows.join(logged, list(ROW_ID)).unionByName(
        changed_rows.join(emptied, "table_name"), allowMissingColumns=True
    )
    return ids_in(later.where("placed < ordering_key").distinct())


def ids_in(rows: DataFrame) -> frozenset[RowId]:
    """Return the ids of rows, collected in the driver."""
    return frozenset((row[0], row[1]) for row in rows.select(*ROW_ID).collect())


def links_in(changes: DataFrame, tables: Collection[str] | None = None) -> list[Link]:
    """Return the new and old ids of rows whose keys change, of some tables or of all."""
    moves = changes.where("previous_keys IS NOT NULL")
    if tables is not None:
        moves = moves.where(F.col("table_name").isin(*tables))
    rows = moves.select(*ROW_ID, "previous_keys").collect()
    return [((row[0], row[1]), (row[0], row[2])) for row in rows]


def logged_lines(log: DataFrame, changes: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the lines of rows from the log, and all truncates for each of their key chains.

    Args:
        log: the log without the changes.
        changes: changes that are to enter it.
        rows: `table_name`, `keys` and `key_chain` of the rows, broadcast.
    """
    logged = log.selectExpr(*_LINE, f"unix_micros(commit_timestamp) as {LOGGED_MICROS}")
    truncates = logged.unionByName(changes.selectExpr(*_LINE), allowMissingColumns=True).where(IS_TRUNCATE)
    rows = rows.select(*ROW_ID, KEY_CHAIN)
    chains = F.broadcast(rows.drop("keys").distinct())
    return logged.join(rows, list(ROW_ID)).unionByName(truncates.join(chains, "table_name"))
