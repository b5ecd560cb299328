"""Single rows of the tables as they were after a cycle, with their values as the log writes them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.commits.commits import BRANCH, head, read_mark
from cdc_platform.model.base.names import KEY_PREFIX, case_key, quote_spark
from cdc_platform.model.schema.table_options import DELETED, keeps_deleted
from cdc_platform.model.schema.table_schema import ARRAY, ColumnType, TableSchema
from cdc_platform.model.schema.table_schema import Column as SourceColumn
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.evolve import known_through
from cdc_platform.pipeline.schema.retyped_columns import NOTHING, replaced_columns
from cdc_platform.pipeline.versions.branch import contains, finished_head
from cdc_platform.pipeline.versions.lake_frames import read_log, read_table
from cdc_platform.spark.frames.some_rows import changes_of
from cdc_platform.spark.log.unresolved import unresolved_values
from cdc_platform.spark.tables.typed import ORDINAL, type_changes

LACKS: Final = "lacks_values"
"""Whether any of the columns that were asked for is NULL: of some the log tells that nobody knows them."""


@dataclass(frozen=True)
class Lookup:
    """Place in which values are looked up.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        cycle: cycle of the log that the tables must have reached; one that has not is brought there.
        columns: the columns that are asked for, by table, by their names in the source.
    """

    pipeline: Pipeline
    spark: SparkSession
    cycle: int
    columns: Mapping[str, Collection[str]]

    def rows(self, table: str, keys: DataFrame) -> DataFrame | None:
        """Return values of rows of one table; None where the table has no version of the cycle.

        Args:
            table: the source table.
            keys: the rows' `keys`, distinct; a table is not moved to those that are broadcast.

        Returns:
            `table_name`, `keys`, `new_values` (a JSON object of the columns that the table has) and
            `lacks_values`; no row for one that the table does not have.
        """
        pipeline = self.pipeline
        is_present = any(schema.name == table for schema in pipeline.tables)
        version = version_at(pipeline, self.spark, table, self.cycle) if is_present else None
        if version is None:
            return None
        schema = pipeline.stored(table)
        rows = read_table(pipeline, self.spark, table, version.snapshot_id)
        if keeps_deleted(schema):
            rows = rows.where(~F.col(DELETED))
        there = {case_key(name) for name in rows.columns}
        names = {*self.columns[table]} - self.replaced.get(table, NOTHING)
        values = [
            column
            for column in schema.value_columns
            if column.source_name in names and case_key(column.name) in there
        ]
        return _joined(rows, _typed_keys(keys, schema), schema, values)

    @cached_property
    def replaced(self) -> Mapping[str, frozenset[str]]:
        """Columns, by table, whose stored values are of another type than the changes at hand."""
        return replaced_columns(self.pipeline, self.cycle)

    def unresolved(self, ids: DataFrame) -> DataFrame:
        """Return those values of rows that nobody knows, as `table_name`, `keys` and `column_name`."""
        log = read_log(self.pipeline, self.spark)
        since = known_through(self.pipeline, self.cycle).observed_since
        return unresolved_values(changes_of(log, ids, self.columns), since)


def version_at(pipeline: Pipeline, spark: SparkSession, table: str, cycle: int) -> Snapshot | None:
    """Return the snapshot that holds a table as it was after a cycle; None where there is none.

    A table that has not reached the cycle is brought there.
    """
    if cycle == 0:
        return None
    merge_tables(pipeline, spark, [pipeline.table(table)])
    stored = pipeline.lake.table(table)
    if stored is None:
        return None
    snapshot = finished_head(stored)
    if (
        snapshot is not None
        and read_mark(stored, BRANCH).cycle == cycle
        and not contains(stored, snapshot.snapshot_id)
    ):
        return snapshot
    return head(stored)


def _joined(
    rows: DataFrame, keys: DataFrame, schema: TableSchema, values: Collection[SourceColumn]
) -> DataFrame:
    same = [
        F.col(quote_spark(column.name)).eqNullSafe(F.col(f"{KEY_PREFIX}{number}"))
        for number, column in enumerate(schema.key_columns)
    ]
    stored = {column.source_name: F.col(quote_spark(column.name)) for column in values}
    texts = [_text(stored[column.source_name], column.type).alias(column.source_name) for column in values]
    json_text = F.to_json(F.struct(*texts), {"ignoreNullFields": "false"}) if texts else F.lit("{}")
    lacks = F.lit(False)
    for value in stored.values():
        lacks |= value.isNull()
    return rows.join(keys, same).select(
        F.lit(schema.name).alias("table_name"),
        F.col(ORDINAL).alias("keys"),
        json_text.alias("new_values"),
        lacks.alias(LACKS),
    )


def _typed_keys(keys: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the key columns of key texts, each beside its text."""
    nothing = F.lit(None).cast("string")
    log = keys.select(
        "keys",
        F.col("keys").alias("ordinal"),
        F.lit("delete").alias("change_kind"),
        nothing.alias("new_values"),
        F.lit(True).alias("is_whole_row"),
        nothing.alias("transaction_id"),
        nothing.cast("timestamp").alias("commit_timestamp"),
    )
    typed = type_changes(log, TableSchema(schema.name, schema.key_columns), has_partial_updates=False)
    named = [
        F.col(quote_spark(column.name)).alias(f"{KEY_PREFIX}{number}")
        for number, column in enumerate(schema.key_columns)
    ]
    return typed.select(*named, ORDINAL)


def _text(value: Column, column_type: ColumnType) -> Column:
    """Return a value as text that casts to itself, or as an array of such texts."""
    if column_type.code == ARRAY and column_type.element is not None:
        element = column_type.element
        return F.transform(value, lambda item: _text(item, element))
    if column_type.code in {"BYTES", "PROTO"}:
        # Spark breaks the text into lines.
        return F.translate(F.base64(value), "\r\n", "")
    if column_type.code == "TIMESTAMP":
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    if column_type.code == "DATETIME":
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    return value.cast("string")
