"""Truncates in the log: changes of a whole table, converted to their effects on rows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.log.order import IS_TRUNCATE

_CARRIED = ("ordinal", "ordering_key", "commit_timestamp", "source_timestamp", "transaction_id")


def after_truncates(log: DataFrame, order: str = "ordinal") -> DataFrame:
    """Return a table's changes after its last truncate.

    Args:
        log: changes of the table.
        order: the column with their order.
    """
    last = log.where(IS_TRUNCATE).agg(F.max(order).alias("truncated_at"))
    rows = log.where(f"NOT {IS_TRUNCATE}").crossJoin(F.broadcast(last))
    return rows.where(f"truncated_at is null or {order} > truncated_at").drop("truncated_at")


def with_truncated_rows(log: DataFrame, order: str = "ordinal") -> DataFrame:
    """Return a table's changes, with a truncate of each key for each truncate after its first change.

    Args:
        log: all changes of the table, from its beginning.
        order: the column with their order.
    """
    changes = log.where(f"NOT {IS_TRUNCATE}")
    first = changes.groupBy("keys").agg(F.min(order).alias("first_change"))
    truncates = log.where(IS_TRUNCATE).select(*_CARRIED)
    removed_rows = first.join(F.broadcast(truncates), F.col("first_change") < F.col(order))
    removals = removed_rows.drop("first_change").withColumns(
        {"change_kind": F.lit(ChangeKind.TRUNCATE.value), "is_whole_row": F.lit(True)}
    )
    return changes.unionByName(removals, allowMissingColumns=True)


def has_truncate(log: DataFrame) -> bool:
    """Return whether a table's changes include a truncate."""
    return not log.where(IS_TRUNCATE).limit(1).isEmpty()
