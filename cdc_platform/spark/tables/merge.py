"""Merge of net changes into a table: inserted keys are appended, existing ones merged without a shuffle."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.schema.table_options import ORDERING_KEY, keeps_order
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.spark.frames.columns import col
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, NOTHING, REMOVE, UPDATE, NetChanges
from cdc_platform.spark.tables.typed_columns import flag_of


def append_rows(rows: DataFrame, target: str, properties: Mapping[str, str]) -> None:
    """Append rows to a table or branch in one commit, whose snapshot gets the properties."""
    writer = rows.writeTo(target)
    for key, value in properties.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()


def append_inserted(
    net_changes: DataFrame, target: str, table: TableSchema, properties: dict[str, str]
) -> None:
    """Append the inserted keys; the source guarantees that the table has none of them."""
    columns = [col(column.name) for column in table.columns]
    append_rows(net_changes.where(F.col(ACTION) == APPEND).select(*columns), target, properties)


def merge_existing(spark: SparkSession, net_changes: NetChanges, target: str) -> None:
    """Update and delete existing keys.

    With matched clauses only it is an inner join, which broadcasts the net changes
    (`spark.sql.autoBroadcastJoinThreshold`) and never shuffles the table.
    """
    source = f"SELECT * FROM {net_changes.view} WHERE {ACTION} IN ('{UPDATE}', '{REMOVE}')"
    spark.sql(_merge_sql(source, target, net_changes, is_bounded=True))


def merge_everything(spark: SparkSession, net_changes: NetChanges, target: str) -> None:
    """Merge net changes without assuming which keys the table has; slower by a shuffle of the table.

    A key that was inserted and deleted again is deleted, too, in case the table has it.
    """
    columns = f"* EXCEPT ({ACTION}), CASE {ACTION} WHEN '{NOTHING}' THEN '{REMOVE}' ELSE {ACTION} END"
    source = f"SELECT {columns} AS {ACTION} FROM {net_changes.view}"
    names = [column.name for column in net_changes.schema.columns]
    columns, values = ", ".join(map(quote_spark, names)), ", ".join(quote_spark("s", name) for name in names)
    spark.sql(
        f"{_merge_sql(source, target, net_changes, is_bounded=False)} "
        f"WHEN NOT MATCHED AND s.{ACTION} <> '{REMOVE}' THEN INSERT ({columns}) VALUES ({values})"
    )


def _merge_sql(source: str, target: str, net_changes: NetChanges, *, is_bounded: bool) -> str:
    table = net_changes.schema
    conditions = net_changes.stats.conditions(table, is_bounded=is_bounded)
    # Late and repeated changes have no effect; but partial updates were computed with all newer changes.
    follows = ">=" if net_changes.has_partial_updates else ">"
    is_newer = f" AND s.{ORDERING_KEY} {follows} coalesce(t.{ORDERING_KEY}, '')"
    newer = is_newer if keeps_order(table) else ""
    return (
        f"MERGE INTO {target} t USING ({source}) s ON {' AND '.join(conditions)} "
        f"WHEN MATCHED AND s.{ACTION} = '{REMOVE}'{newer} THEN DELETE "
        f"{_update_clause(net_changes, newer)}"
    )


def _update_clause(net_changes: NetChanges, newer: str) -> str:
    table = net_changes.schema
    assignments = [
        f"{quote_spark('t', column.name)} = {_new_value(column.name, net_changes)}"
        for column in table.value_columns
    ] or [
        # In a table with only key columns nothing changes, but existing rows count as matched.
        f"{quote_spark('t', column.name)} = {quote_spark('s', column.name)}"
        for column in table.key_columns
    ]
    return f"WHEN MATCHED{newer} THEN UPDATE SET {', '.join(assignments)}"


def _new_value(name: str, net_changes: NetChanges) -> str:
    new, old = quote_spark("s", name), quote_spark("t", name)
    # Without the old value, the merge does not read the column.
    if not net_changes.has_partial_updates or name in net_changes.stats.named_columns:
        return new
    return f"CASE WHEN {quote_spark('s', flag_of(name))} THEN {new} ELSE {old} END"
