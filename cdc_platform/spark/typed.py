"""From the change log's JSON to the typed columns of one table."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.changes import ChangeKind
from cdc_platform.model.names import quote_spark
from cdc_platform.model.table_schema import Column as SourceColumn
from cdc_platform.model.table_schema import ColumnType, TableSchema, spark_type

KIND = "__kind"
ORDINAL = "__ordinal"


def named(column: str) -> str:
    """Return the name of the flag that tells whether a change names a column."""
    return f"__names_{column}"


def type_changes(log: DataFrame, table: TableSchema, *, has_patches: bool) -> DataFrame:
    """Return one table's changes with typed columns.

    Args:
        log: rows of the change log, of this table only.
        table: the table's columns; where it is evolving, what a change says of a column counts only
            within the column's life.
        has_patches: whether any change may name only some columns, as all changes of an evolving table may.

    Returns:
        `__kind`, `__ordinal`, the key columns, the value columns and, with patches, one flag
        `__names_COLUMN` for each value column.
    """
    parsed = log.select(
        F.col("change_kind").alias(KIND),
        F.col("ordinal").alias(ORDINAL),
        F.from_json("keys", _texts(table.key_columns)).alias("k"),
        F.from_json("new_values", _texts(table.value_columns)).alias("v"),
        *([_names().alias("names")] if has_patches else []),
        *([F.unix_micros("commit_timestamp").alias("committed")] if table.is_evolving else []),
    )
    flags = [_is_named(column).alias(named(column.name)) for column in table.value_columns]
    return parsed.select(
        KIND,
        ORDINAL,
        *(_typed("k", column) for column in table.key_columns),
        *(_typed("v", column) for column in table.value_columns),
        *(flags if has_patches else []),
    )


def _texts(columns: tuple[SourceColumn, ...]) -> str:
    # Several versions of a column have one name in the records.
    names = dict.fromkeys(column.source_name for column in columns)
    fields = ", ".join(f"{quote_spark(name)}: string" for name in names)
    return f"struct<{fields or '`_`: string'}>"


def _names() -> Column:
    """The columns that a change names; NULL when it names them all."""
    keys = F.coalesce(F.json_object_keys("new_values"), F.array().cast("array<string>"))
    return F.when(~F.col("is_whole_row"), keys)


def _is_named(column: SourceColumn) -> Column:
    names = F.col("names").isNull() | F.array_contains("names", column.source_name)
    if column.life is None:
        return names
    # A row that begins or ends has no value of what it does not know; any other keeps what it has.
    is_row_event = F.col(KIND) != F.lit(ChangeKind.UPDATE.value)
    return is_row_event | (names & F.expr(_within(column, with_former=True)))


def _within(column: SourceColumn, *, with_former: bool) -> str:
    """Return the SQL for whether a change was committed in the life of a column, or of a former version."""
    bounds = ["true"]
    first = column
    while with_former and first.life is not None and first.life.before is not None:
        first = first.life.before
    if first.life is not None and first.life.since_micros_inclusive is not None:
        bounds.append(f"committed >= {first.life.since_micros_inclusive}")
    if column.life is not None and column.life.until_micros_exclusive is not None:
        bounds.append(f"committed < {column.life.until_micros_exclusive}")
    return f"({' AND '.join(bounds)})"


def _typed(struct: str, column: SourceColumn) -> Column:
    return F.expr(_value(struct, column)).alias(column.name)


def _value(struct: str, column: SourceColumn) -> str:
    own = cast_expression(quote_spark(struct, column.source_name), column.type)
    if column.life is None:
        return own
    cases = f"WHEN {_within(column, with_former=False)} THEN {own}"
    former = column.life.before
    if former is not None:
        converted = convert_expression(_value(struct, former), former.type, column.type)
        cases += f" WHEN committed < {column.life.since_micros_inclusive} THEN {converted}"
    return f"CASE {cases} END"


def convert_expression(value: str, old: ColumnType, new: ColumnType) -> str:
    """Return the SQL that converts a value as Spanner does when a column changes its type in place."""
    source, target = spark_type(old), spark_type(new)
    if source == target:
        return value
    if "PROTO" in {old.code, new.code}:
        # Protocol buffers are kept as the text that the records have of them.
        return f"unbase64({value})" if target == "binary" else f"base64({value})"
    return f"cast({value} as {target})"


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
