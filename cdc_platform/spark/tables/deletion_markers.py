"""Deletion markers, and late changes of rows that are more than their newest change."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdc_platform.model.base.schemas import DELETION_MARKER_ROWS
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.log.order import UNSOUND
from cdc_platform.spark.tables.typed_columns import ROW, with_row


def deletion_markers(changes: DataFrame, cycle: int) -> DataFrame:
    """Return the rows of DELETION_MARKER_ROWS for the changes of a cycle.

    Args:
        changes: the result of `order_records`.
        cycle: number of the cycle.
    """
    is_delete = ~F.col(UNSOUND) & (F.col("change_kind") == ChangeKind.DELETE.value)
    return (
        changes.where(is_delete)
        .withColumn("cycle", F.lit(cycle).cast("bigint"))
        .select(*DELETION_MARKER_ROWS.names)
    )


def with_deletion_markers(
    log: DataFrame, markers: DataFrame, table: TableSchema, *, is_small: bool
) -> DataFrame:
    """Return a table's changes with the earlier deletions of the rows that they change.

    Args:
        log: rows of the change log, of one table.
        markers: deletion markers of the same table, of other cycles.
        table: the table's columns.
        is_small: whether one task can read both, which then makes a single stage of the query.
    """
    if is_small:
        log, markers = log.coalesce(1), markers.coalesce(1)
    touched_rows = with_row(log, table, columns=())
    is_deletion = f"'{ChangeKind.DELETE.value}' AS change_kind"
    deletions = with_row(markers, table, columns=("keys", "ordering_key", "commit_timestamp", is_deletion))
    # Without the hint, Spark would broadcast the rows, by a job of its own.
    own_rows = touched_rows.hint("shuffle_hash") if is_small else touched_rows.distinct()
    own_deletions = deletions.join(own_rows, ROW, "left_semi").drop(ROW)
    changes = log.unionByName(own_deletions, allowMissingColumns=True)
    return changes.coalesce(1) if is_small else changes


_OLDEST, _NEWEST, _ENDED = "__oldest", "__newest", "__ended"


def with_former(log: DataFrame, former: DataFrame, table: TableSchema, *, is_small: bool) -> DataFrame:
    """Return a table's changes with all earlier ones of the rows that got late changes.

    A row got a late change if an earlier-logged change is newer than one of these, or if these follow a
    delete. The net change of both is then the row, in any order of arrival.

    Args:
        log: rows of the change log, of one table.
        former: those of the same table in earlier cycles.
        table: the table's columns.
        is_small: whether there are few enough keys to broadcast them.
    """
    rows = with_row(log, table, columns=("ordering_key",))
    oldest = rows.groupBy(ROW).agg(F.min("ordering_key").alias(_OLDEST))
    changes = with_row(former, table).join(F.broadcast(oldest) if is_small else oldest, ROW)
    of_key = Window.partitionBy(ROW)
    is_deleted = F.max_by("change_kind", "ordering_key").over(of_key) == ChangeKind.DELETE.value
    with_marks = changes.withColumns({_NEWEST: F.max("ordering_key").over(of_key), _ENDED: is_deleted})
    late_rows = with_marks.where((F.col(_NEWEST) > F.col(_OLDEST)) | F.col(_ENDED))
    return log.unionByName(late_rows.select(*log.columns))
