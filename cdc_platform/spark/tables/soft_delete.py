"""Soft delete: a delete becomes a partial update that marks the row and keeps its values."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.schema.table_options import DELETED, DELETED_AT, source_schema
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.spark.frames.casts import convert_stored_expression
from cdc_platform.spark.frames.columns import col, has_same_key, key_aliases, key_cols
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, UPDATE, compute_net_changes
from cdc_platform.spark.tables.typed_columns import COMMITTED, KIND, ORDINAL, TRANSACTION, flag_of

_IS_BACK: Final = "__is_back"


def compute_soft_net_changes(
    changes: DataFrame, schema: TableSchema, capabilities: SourceCapabilities
) -> DataFrame:
    """Return the net changes with partial updates, in which a delete marks the row and keeps it.

    Args:
        changes: the result of `type_changes` for the source's columns, with partial updates and origin.
        schema: the table's columns in the lake, with `__deleted` and `__deleted_at`.
        capabilities: those of the source.
    """
    table = source_schema(schema)
    # If a cycle may end within a transaction, readers may have seen rows that it inserts and deletes.
    drops_unseen = capabilities.keeps_transactions or not capabilities.comes_in_order
    visible = _drop_unseen(changes, table) if drops_unseen else changes
    # In order, only an insert follows the delete of a row.
    is_back = F.lit(False) if capabilities.comes_in_order else _is_back(table)
    visible = visible.withColumn(_IS_BACK, is_back)
    net_changes = compute_net_changes(_mark_deletes(visible, table), schema)
    return net_changes.withColumn(DELETED, F.coalesce(DELETED, F.lit(False)))


def _drop_unseen(changes: DataFrame, table: TableSchema) -> DataFrame:
    """Omit rows that were inserted and deleted within one transaction, since they were never visible."""
    of_key = Window.partitionBy(*key_cols(table), COMMITTED, TRANSACTION).orderBy(ORDINAL)
    all_rows = of_key.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_inserted = F.first(KIND).over(all_rows) == ChangeKind.INSERT.value
    is_gone = F.last(KIND).over(all_rows) == ChangeKind.DELETE.value
    return changes.withColumn("__unseen", is_inserted & is_gone).where("NOT __unseen").drop("__unseen")


def _is_back(table: TableSchema) -> Column:
    """Return whether a change follows a delete: no value of the deleted row is one of the new row."""
    of_key = Window.partitionBy(*key_cols(table)).orderBy(ORDINAL)
    return F.lag(KIND).over(of_key).eqNullSafe(ChangeKind.DELETE.value)


def _mark_deletes(changes: DataFrame, table: TableSchema) -> DataFrame:
    is_delete = F.col(KIND) == ChangeKind.DELETE.value
    is_row_event = F.col(KIND) != ChangeKind.UPDATE.value
    flags = [flag_of(column.name) for column in table.value_columns]
    return changes.select(
        F.when(is_delete, ChangeKind.UPDATE.value).otherwise(F.col(KIND)).alias(KIND),
        ORDINAL,
        *(col(column.name) for column in table.columns),
        *(((col(flag) | F.col(_IS_BACK)) & ~is_delete).alias(flag) for flag in flags),
        is_delete.alias(DELETED),
        F.when(is_delete, F.col(COMMITTED)).alias(DELETED_AT),
        *(is_row_event.alias(flag_of(name)) for name in (DELETED, DELETED_AT)),
    )


def find_returning(
    net_changes: DataFrame, before: DataFrame, schema: TableSchema, *, is_small: bool
) -> DataFrame:
    """Return the net changes, in which inserted keys count as existing if the table has them as deleted.

    Args:
        net_changes: the result of `compute_soft_net_changes`.
        before: the table before the changes.
        schema: the table's columns in the lake.
        is_small: whether there are few enough keys to broadcast them.
    """
    new_keys = net_changes.where(F.col(ACTION) == APPEND).select(*key_aliases(schema))
    deleted_rows = before.where(col(DELETED)).withColumns(_widened_keys(before, schema))
    back = deleted_rows.join(
        F.broadcast(new_keys) if is_small else new_keys, has_same_key(schema), "left_semi"
    )
    returning_keys = back.select(*key_aliases(schema), F.lit(True).alias(_IS_BACK))
    matches = net_changes.join(
        F.broadcast(returning_keys) if is_small else returning_keys, has_same_key(schema), "left"
    )
    action = F.when((F.col(ACTION) == APPEND) & F.col(_IS_BACK), UPDATE).otherwise(F.col(ACTION))
    return matches.withColumn(ACTION, action).select(*map(col, net_changes.columns))


def _widened_keys(before: DataFrame, schema: TableSchema) -> dict[str, Column]:
    """Return the key columns that had another type before, converted to their current type."""
    types = {field.name: field.dataType.simpleString() for field in before.schema.fields}
    return {
        column.name: F.expr(
            convert_stored_expression(quote_spark(column.name), types[column.name], column.type)
        )
        for column in schema.key_columns
        if types[column.name] != spark_type(column.type)
    }
