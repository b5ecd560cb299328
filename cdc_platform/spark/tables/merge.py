"""Merge of net changes into a table: inserted keys are appended, existing ones merged without a shuffle."""

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.catalog.lake_settings import KEPT_BY_TIME
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.schema.table_options import ORDERING_KEY, keeps_order
from cdc_platform.model.schema.table_schema import PRIMARY_KEY, TableSchema, spark_type
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, NOTHING, REMOVE, UPDATE, NetChangeStats
from cdc_platform.spark.tables.typed import flag_of


def create_table_sql(target: str, table: TableSchema, format_version: int) -> str:
    """Return the statement that creates the merge-on-read table of a source table."""
    columns = ", ".join(
        f"{quote_spark(column.name)} {spark_type(column.type)}"
        + (f" COMMENT '{PRIMARY_KEY}'" if column.is_primary_key else "")
        for column in table.columns
    )
    properties = {
        "format-version": str(format_version),
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        "write.merge.distribution-mode": "none",
        "write.update.distribution-mode": "none",
        "write.delete.distribution-mode": "none",
        "write.distribution-mode": "none",
        # Iceberg retries after a conflict with compaction; the branch detects a conflict with another cycle.
        "write.merge.isolation-level": "snapshot",
        "write.parquet.compression-codec": "zstd",
        **KEPT_BY_TIME,
    }
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    return f"CREATE TABLE IF NOT EXISTS {target} ({columns}) USING iceberg TBLPROPERTIES ({listed})"


def append_inserted(
    net_changes: DataFrame, target: str, table: TableSchema, properties: dict[str, str]
) -> None:
    """Append the inserted keys; the source guarantees that the table has none of them."""
    columns = [F.col(quote_spark(column.name)) for column in table.columns]
    writer = net_changes.where(F.col(ACTION) == APPEND).select(*columns).writeTo(target)
    for key, value in properties.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()


def merge_existing(
    spark: SparkSession,
    view: str,
    target: str,
    table: TableSchema,
    stats: NetChangeStats,
    *,
    has_partial_updates: bool,
) -> None:
    """Update and delete existing keys.

    With matched clauses only it is an inner join, which broadcasts the net changes
    (`spark.sql.autoBroadcastJoinThreshold`) and never shuffles the table.
    """
    source = f"SELECT * FROM {view} WHERE {ACTION} IN ('{UPDATE}', '{REMOVE}')"
    spark.sql(_merge_sql(source, target, table, stats, has_partial_updates=has_partial_updates, bounded=True))


def merge_everything(
    spark: SparkSession,
    view: str,
    target: str,
    table: TableSchema,
    stats: NetChangeStats,
    *,
    has_partial_updates: bool,
) -> None:
    """Merge net changes without assuming which keys the table has; slower by a shuffle of the table.

    A key that was inserted and deleted again is deleted, too, in case the table has it.
    """
    columns = f"* EXCEPT ({ACTION}), CASE {ACTION} WHEN '{NOTHING}' THEN '{REMOVE}' ELSE {ACTION} END"
    source = f"SELECT {columns} AS {ACTION} FROM {view}"
    merge = _merge_sql(source, target, table, stats, has_partial_updates=has_partial_updates, bounded=False)
    columns = ", ".join(quote_spark(column.name) for column in table.columns)
    values = ", ".join(quote_spark("s", column.name) for column in table.columns)
    spark.sql(
        f"{merge} WHEN NOT MATCHED AND s.{ACTION} <> '{REMOVE}' THEN INSERT ({columns}) VALUES ({values})"
    )


def _merge_sql(
    source: str,
    target: str,
    table: TableSchema,
    stats: NetChangeStats,
    *,
    has_partial_updates: bool,
    bounded: bool,
) -> str:
    equal = "<=>" if stats.has_null_keys else "="
    conditions = [
        f"{quote_spark('t', column.name)} {equal} {quote_spark('s', column.name)}"
        for column in table.key_columns
    ]
    if bounded and stats.low_inclusive is not None and stats.high_inclusive is not None:
        # Iceberg skips files only by literals, not by the content of the merge's source.
        first = quote_spark("t", table.key_columns[0].name)
        conditions.append(f"{first} BETWEEN {stats.low_inclusive} AND {stats.high_inclusive}")
    # Late and repeated changes have no effect; but partial updates were computed with all newer changes.
    follows = ">=" if has_partial_updates else ">"
    is_newer = f" AND s.{ORDERING_KEY} {follows} coalesce(t.{ORDERING_KEY}, '')"
    newer = is_newer if keeps_order(table) else ""
    return (
        f"MERGE INTO {target} t USING ({source}) s ON {' AND '.join(conditions)} "
        f"WHEN MATCHED AND s.{ACTION} = '{REMOVE}'{newer} THEN DELETE "
        f"{_update_clause(table, newer, has_partial_updates=has_partial_updates)}"
    )


def _update_clause(table: TableSchema, newer: str, *, has_partial_updates: bool) -> str:
    new_value = partial(_new_value, has_partial_updates=has_partial_updates)
    assignments = [
        f"{quote_spark('t', column.name)} = {new_value(column.name)}" for column in table.value_columns
    ] or [
        # In a table with only key columns nothing changes, but existing rows count as matched.
        f"{quote_spark('t', column.name)} = {quote_spark('s', column.name)}"
        for column in table.key_columns
    ]
    return f"WHEN MATCHED{newer} THEN UPDATE SET {', '.join(assignments)}"


def _new_value(name: str, *, has_partial_updates: bool) -> str:
    new, old = quote_spark("s", name), quote_spark("t", name)
    if not has_partial_updates:
        return new
    return f"CASE WHEN {quote_spark('s', flag_of(name))} THEN {new} ELSE {old} END"
