"""From the change log's JSON to the typed columns of one table."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.names import quote_spark
from cdc_platform.model.table_schema import Column as SourceColumn
from cdc_platform.model.table_schema import ColumnType, TableSchema, spark_type

KIND = "__kind"
ORDINAL = "__ordinal"
COMMITTED = "__committed"
TRANSACTION = "__transaction"
ORIGIN = {COMMITTED: "commit_timestamp", TRANSACTION: "transaction_id"}


def named(column: str) -> str:
    """Return the name of the flag that tells whether a change names a column."""
    return f"__names_{column}"


def type_changes(
    log: DataFrame, table: TableSchema, *, has_patches: bool, has_origin: bool = False
) -> DataFrame:
    """Return one table's changes with typed columns.

    Args:
        log: rows of the change log, of this table only.
        table: the table's columns.
        has_patches: whether any change may name only some columns.
        has_origin: whether it matters which transaction made a change.

    Returns:
        `__kind`, `__ordinal`, with origin `__committed` and `__transaction`, the key columns, the value
        columns and, with patches, one flag `__names_COLUMN` for each value column.
    """
    origin = ORIGIN if has_origin else {}
    parsed = log.select(
        F.col("change_kind").alias(KIND),
        F.col("ordinal").alias(ORDINAL),
        *(F.col(column).alias(name) for name, column in origin.items()),
        F.from_json("keys", _texts(table.key_columns)).alias("k"),
        F.from_json("new_values", _texts(table.value_columns)).alias("v"),
        *([_names().alias("names")] if has_patches else []),
    )
    flags = [_is_named(column.name).alias(named(column.name)) for column in table.value_columns]
    return parsed.select(
        KIND,
        ORDINAL,
        *origin,
        *(_cast("k", column.name, column.type) for column in table.key_columns),
        *(_cast("v", column.name, column.type) for column in table.value_columns),
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


def _cast(struct: str, name: str, column_type: ColumnType) -> Column:
    text = quote_spark(struct, name)
    return F.expr(cast_expression(text, column_type)).alias(name)


def cast_expression(text: str, column_type: ColumnType) -> str:
    """Return the SQL that turns Spanner's JSON text of a value into its Spark type; NULL where it cannot."""
    if column_type.element is not None:
        element = cast_expression("e", column_type.element)
        return f"transform(from_json({text}, 'array<string>'), e -> {element})"
    target = spark_type(column_type)
    if target == "string":
        return text
    if target == "binary":
        return f"try_to_binary({text}, 'base64')"
    return f"try_cast({text} as {target})"
