"""From the change log's JSON to the typed columns of one table."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import ValueUnfit
from cdc_platform.model.names import quote_spark, quote_text
from cdc_platform.model.table_schema import Column as SourceColumn
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.spark.casts import shown_expression, strict_cast_expression

KIND = "__kind"
ORDINAL = "__ordinal"
KEY_TEXT = "__key_text"
UNFIT = "cdc_platform: a value does not fit its type: "
"""Begins the message with which a query fails; the facts follow as JSON."""


def named(column: str) -> str:
    """Return the name of the flag that tells whether a change names a column."""
    return f"__names_{column}"


def type_changes(log: DataFrame, table: TableSchema, *, has_patches: bool) -> DataFrame:
    """Return one table's changes with typed columns.

    Args:
        log: rows of the change log, of this table only.
        table: the table's columns.
        has_patches: whether any change may name only some columns.

    Returns:
        `__kind`, `__ordinal`, the key columns, the value columns and, with patches, one flag
        `__names_COLUMN` for each value column. Where a value does not fit its column's type, the query
        fails: see `unfit_values`.
    """
    parsed = log.select(
        F.col("change_kind").alias(KIND),
        F.col("ordinal").alias(ORDINAL),
        F.col("keys").alias(KEY_TEXT),
        F.from_json("keys", _texts(table.key_columns)).alias("k"),
        F.from_json("new_values", _texts(table.value_columns)).alias("v"),
        *([_names().alias("names")] if has_patches else []),
    )
    flags = [_is_named(column.name).alias(named(column.name)) for column in table.value_columns]
    return parsed.select(
        KIND,
        ORDINAL,
        *(_cast("k", table, column) for column in table.key_columns),
        *(_cast("v", table, column) for column in table.value_columns),
        *(flags if has_patches else []),
    )


def _texts(columns: tuple[SourceColumn, ...]) -> str:
    fields = ", ".join(f"{quote_spark(column.name)}: string" for column in columns)
    return f"struct<{fields or '`_`: string'}>"


def _names() -> Column:
    """The columns that a change names; NULL when it names them all."""
    keys = F.coalesce(F.json_object_keys("new_values"), F.array().cast("array<string>"))
    return F.when(~F.col("is_whole_row"), keys)


def _is_named(column: str) -> Column:
    return F.col("names").isNull() | F.array_contains("names", column)


def _cast(struct: str, table: TableSchema, column: SourceColumn) -> Column:
    text = quote_spark(struct, column.name)
    told = {
        "table": quote_text(table.name),
        "column": quote_text(column.name),
        "type_name": quote_text(column.type.text),
        "value": shown_expression(text),
        "key": KEY_TEXT,
    }
    facts = ", ".join(f"'{name}', {sql}" for name, sql in told.items())
    failure = f"concat('{UNFIT}', to_json(named_struct({facts})))"
    return F.expr(strict_cast_expression(text, column.type, failure)).alias(column.name)


@contextmanager
def unfit_values() -> Iterator[None]:
    """Raise our own error when a query meets a value that does not fit its column's type.

    Raises:
        ValueUnfit: it does not; the error names table, key and column.
    """
    try:
        yield
    except PySparkException as error:
        _, found, facts = str(error).partition(UNFIT)
        if not found:
            raise
        raise ValueUnfit(**json.JSONDecoder().raw_decode(facts)[0]) from error
