"""Columns of frames, by exact names, and the keys of tables in joins."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.model.base.names import KEY_PREFIX, quote_spark
from cdc_platform.model.schema.table_schema import TableSchema


def col(name: str) -> Column:
    """Return the column with exactly this name, in which a dot selects no field."""
    return F.col(quote_spark(name))


def key_cols(table: TableSchema) -> list[Column]:
    """Return the key columns of a table."""
    return [col(column.name) for column in table.key_columns]


def key_aliases(table: TableSchema) -> list[Column]:
    """Return the key columns of a table under names that `has_same_key` joins."""
    return [key.alias(f"{KEY_PREFIX}{number}") for number, key in enumerate(key_cols(table))]


def has_same_key(table: TableSchema) -> list[Column]:
    """Return the conditions of a join of a table's rows with a frame that has `key_aliases`."""
    return [key.eqNullSafe(F.col(f"{KEY_PREFIX}{number}")) for number, key in enumerate(key_cols(table))]
