"""Deletion markers: records of deleted rows while older events of them may still arrive."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.base.schemas import DELETION_MARKER_ROWS
from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.spark.log.order import UNSOUND
from cdc_platform.spark.tables.typed import ROW, with_row


def deletion_markers(ordered: DataFrame, cycle: int) -> DataFrame:
    """Return the rows of DELETION_MARKER_ROWS for the changes of a cycle.

    Args:
        ordered: the result of `order_records`.
        cycle: number of the cycle.
    """
    is_delete = ~F.col(UNSOUND) & (F.col("change_kind") == ChangeKind.DELETE.value)
    return (
        ordered.where(is_delete)
        .withColumn("cycle", F.lit(cycle).cast("bigint"))
        .select(*DELETION_MARKER_ROWS.names)
    )


def with_deletion_markers(log: DataFrame, buried: DataFrame, table: TableSchema) -> DataFrame:
    """Return a table's changes with the earlier deletions of the rows that they change.

    Args:
        log: rows of the change log, of one table.
        buried: deletion markers of the same table, of other cycles.
        table: the table's columns.
    """
    touched = with_row(log, table).select(ROW).distinct()
    graves = with_row(buried, table).join(touched, ROW, "left_semi")
    deletions = graves.select("keys", "ordering_key", "commit_timestamp").withColumn(
        "change_kind", F.lit(ChangeKind.DELETE.value)
    )
    return log.unionByName(deletions, allowMissingColumns=True)
