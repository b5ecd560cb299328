"""Values that nobody knows: the source did not send them, and the log has not had them before."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.changes import ChangeKind

LACKS_VALUES: Final = "coalesce(size(unavailable_columns), 0) > 0"
_TRUNCATE, _DELETE = (f"'{kind.value}'" for kind in (ChangeKind.TRUNCATE, ChangeKind.DELETE))
_BEGINS: Final = ", ".join(f"'{kind.value}'" for kind in (ChangeKind.INSERT, ChangeKind.DELETE))
_TELLS: Final = f"""
    change_kind <> {_DELETE}
    AND NOT array_contains(coalesce(unavailable_columns, array()), column_name)
    AND (is_whole_row OR coalesce(array_contains(json_object_keys(new_values), column_name), false))
"""


def unresolved_values(log: DataFrame) -> DataFrame:
    """Return the values that rows have, and that the log does not tell.

    A value is unresolved from the change on that left it out, where no change of the row had told it since
    the row began, until one does.

    Args:
        log: rows of the change log; of a row all changes, or none.

    Returns:
        `table_name`, `keys` and `column_name`.
    """
    left_out = log.where(LACKS_VALUES).select(
        "table_name", "keys", F.explode("unavailable_columns").alias("column_name")
    )
    asked = left_out.distinct()
    told = asked.join(log.where(f"change_kind <> {_TRUNCATE}"), ["table_name", "keys"])
    rows = told.groupBy("table_name", "keys", "column_name").agg(
        F.expr(f"max(if({_TELLS}, ordinal, null))").alias("told_at"),
        F.expr(f"max(if(change_kind in ({_BEGINS}), ordinal, null))").alias("begun_at"),
        F.expr(f"max_by(change_kind, ordinal) = {_DELETE}").alias("is_gone"),
        F.max("ordinal").alias("newest"),
    )
    truncated = (
        log.where(f"change_kind = {_TRUNCATE}")
        .groupBy("table_name")
        .agg(F.max("ordinal").alias("truncated_at"))
    )
    living = rows.join(F.broadcast(truncated), "table_name", "left").where(
        "NOT is_gone AND newest > coalesce(truncated_at, -1)"
    )
    unknown = "told_at IS NULL OR told_at < greatest(coalesce(begun_at, 0), coalesce(truncated_at, 0))"
    return living.where(unknown).select("table_name", "keys", "column_name")
