"""Numbering of rows in tables without a key: which of several equal rows a change means."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.rows.keyless import COPY, ROW, UNNUMBERED_PREFIX
from cdc_platform.spark.log.order import IS_DELETE, IS_TRUNCATE, UNSOUND

IS_UNNUMBERED: Final = f"startswith(keys, {quote_text(UNNUMBERED_PREFIX)})"
_ROW_OF: Final = f"get_json_object(keys, '$.{ROW}')"
_COPY_OF: Final = f"cast(get_json_object(keys, '$.{COPY}') as bigint)"
_IN_TABLE: Final = "partition by table_name order by ordinal rows unbounded preceding"
_OF_ROW: Final = "partition by table_name, span, row order by ordinal rows unbounded preceding"


def unnumbered_rows(changes: DataFrame) -> DataFrame:
    """Return the unnumbered rows that a batch changes, distinct, as `table_name` and `row`."""
    return changes.where(IS_UNNUMBERED).selectExpr("table_name", f"{_ROW_OF} as row").distinct()


def number_copies(changes: DataFrame, counts: DataFrame) -> DataFrame:
    """Return ordered changes, with numbers in the keys of rows that have no own key.

    Args:
        changes: the result of `order_records`, persisted.
        counts: number of equal rows before, as `table_name`, `row` and `count`; 0 if missing.
    """
    before_them = counts.selectExpr("table_name as of_table", "row as of_row", "count")
    step = f"if({UNSOUND}, 0, if({IS_DELETE}, -1, 1))"
    spans = changes.selectExpr(
        "*",
        f"if({IS_UNNUMBERED}, {_ROW_OF}, null) as row",
        f"sum(if({IS_TRUNCATE} and not {UNSOUND}, 1, 0)) over ({_IN_TABLE}) as span",
    )
    rows_after = spans.withColumn("after", F.expr(f"sum({step}) over ({_OF_ROW})"))
    is_same = (F.col("table_name") == F.col("of_table")) & (F.col("row") == F.col("of_row"))
    matches = rows_after.join(before_them, is_same, "left")
    before = "if(span = 0, coalesce(count, 0), 0)"
    copy = f"cast({before} + after + if({IS_DELETE}, 1, 0) as string)"
    keys = f"""concat('{{"{COPY}":', {copy}, ',"{ROW}":"', row, '"}}')"""
    with_numbers = matches.withColumn("keys", F.expr(f"if(row is null, keys, {keys})"))
    return with_numbers.select(*changes.columns).orderBy("ordinal")


def count_in_table(table: str, stored_rows: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the number of copies of rows in a table, as `table_name`, `row` and `count`; 0 is left out.

    ``stored_rows`` are the table's rows, as `row` and `copy`; the last copy is the number of copies. ``rows``
    are the distinct rows to count, as `table_name` and `row`.
    """
    table_rows = rows.where(F.col("table_name") == table)
    copies = table_rows.join(stored_rows, "row").groupBy("table_name", "row")
    return copies.agg(F.max("copy").alias("count"))


def count_in_log(log: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the number of copies of rows after all changes of the log, like `count_in_table`.

    The newest change of a row decides: an insert added the copy that it names, a delete removed it.
    """
    tables = [row[0] for row in rows.select("table_name").distinct().collect()]
    changes = log.where(F.col("table_name").isin(tables))
    truncates = changes.groupBy("table_name").agg(
        F.expr(f"max(if({IS_TRUNCATE}, ordinal, null)) as truncated_at")
    )
    log_changes = changes.where(f"not {IS_TRUNCATE}").selectExpr(
        "table_name", f"{_ROW_OF} as row", f"{_COPY_OF} - if({IS_DELETE}, 1, 0) as count", "ordinal"
    )
    of_rows = log_changes.join(rows, ["table_name", "row"], "left_semi")
    newest_changes = of_rows.groupBy("table_name", "row").agg(
        F.max_by("count", "ordinal").alias("count"), F.max("ordinal").alias("ordinal")
    )
    newest = newest_changes.join(truncates, "table_name", "left")
    return newest.where("truncated_at is null or ordinal > truncated_at").select("table_name", "row", "count")
