"""Lines of single rows from the tables after a cycle, in the log's form, and changes of such rows."""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Final

import pyarrow as pa
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.commits.bounds import is_true_throughout
from cdc_platform.lake.commits.commits import head
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import KEY_PREFIX, case_key, quote_spark, quote_text
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.rows.resolution import RowId
from cdc_platform.model.schema.evolution import SchemaHistory, same_type
from cdc_platform.model.schema.observed_columns import ObservedColumn, parse_column_types
from cdc_platform.model.schema.table_options import DELETED, keeps_deleted
from cdc_platform.model.schema.table_schema import ARRAY, ColumnType, TableSchema
from cdc_platform.model.schema.table_schema import Column as SourceColumn
from cdc_platform.model.schema.widening import keeps_values
from cdc_platform.model.stream.lineage import watermark_micros
from cdc_platform.pipeline.completing.key_chains import STORED, STORED_PLACE, UNKNOWN, UNKNOWN_PLACE
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.file_contents import measure_content
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema.schema_evolution import history_through
from cdc_platform.pipeline.versions.lake_frames import read_log, read_table
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.log.order import IS_TRUNCATE
from cdc_platform.spark.log.unknown_values import unresolved_values
from cdc_platform.spark.tables.typed_columns import ORDINAL, type_changes

ROW_ID: Final = ("table_name", "keys")
_IDS: Final = pa.schema([(name, pa.string()) for name in ROW_ID])
_KEY_CHAINS: Final = pa.schema(
    [*((name, pa.string()) for name in (*ROW_ID, "key_chain")), ("is_logged", pa.bool_())]
)


def ids_frame(spark: SparkSession, ids: Iterable[RowId]) -> DataFrame:
    """Return rows' ids as `table_name` and `keys`, broadcast to every task."""
    names, keys = [], []
    for name, key in sorted(ids):
        names.append(name)
        keys.append(key)
    return F.broadcast(local_frame(spark, pa.table([names, keys], schema=_IDS)))


def key_chains_frame(
    spark: SparkSession, chains: Mapping[RowId, str], log_ids: Collection[RowId]
) -> DataFrame:
    """Return rows' ids with their key chains as `key_chain`, and as `is_logged`; broadcast to every task.

    Args:
        spark: Spark session.
        chains: the rows' key chains.
        log_ids: the rows that are followed from the log.
    """
    rows = [(*row_id, chains[row_id], row_id in log_ids) for row_id in sorted(chains)]
    columns = list(zip(*rows, strict=True)) or [()] * len(_KEY_CHAINS)
    return F.broadcast(local_frame(spark, pa.table(list(map(list, columns)), schema=_KEY_CHAINS)))


def changes_of(log: DataFrame, ids: DataFrame, tables: Collection[str]) -> DataFrame:
    """Return the changes of some rows, and the truncates of their tables.

    Args:
        log: changes.
        ids: distinct `table_name` and `keys`.
        tables: the tables of these.
    """
    matches = log.join(ids.withColumn("is_chosen", F.lit(True)), list(ROW_ID), "left")
    is_truncate = F.expr(IS_TRUNCATE) & F.col("table_name").isin(*tables)
    return matches.where(F.col("is_chosen") | is_truncate).select(*log.columns)


NOTHING: Final = frozenset[str]()


def replaced_columns(pipeline: Pipeline, cycle: int) -> Mapping[str, frozenset[str]]:
    """Return the columns, by table, whose values up to a cycle of the log are set aside after it.

    The history of the schema does not have them yet, because it follows the log. Needs no Spark.
    """
    history = history_through(pipeline, cycle)
    if history.position_micros is None:
        return {}
    until_micros = watermark_micros(trace_lineage(pipeline)) or history.position_micros
    content = measure_content(pipeline.lake.system_table(RAW), history.position_micros, until_micros)
    columns_by_table: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for table, text in content.typed_tables():
        columns_by_table[table] |= _replaced(history, table, parse_column_types(text) or {})
    return columns_by_table


def _replaced(history: SchemaHistory, table: str, columns: Mapping[str, ObservedColumn]) -> frozenset[str]:
    table_columns = history.tables.get(table)
    versions = table_columns.live_versions if table_columns is not None else ()
    return frozenset(
        version.name
        for version in versions
        if version.name in columns
        and not same_type(version.type, columns[version.name].type)
        and not keeps_values(version.type, columns[version.name].type)
    )


@dataclass(frozen=True)
class Lookup:
    """Lookup of values in the tables.

    Args:
        pipeline: the pipeline.
        spark: Spark session.
        cycle: cycle of the log that the tables must have reached; tables that lag behind are brought there.
        columns: columns to look up, by table, by their names in the source.
    """

    pipeline: Pipeline
    spark: SparkSession
    cycle: int
    columns: Mapping[str, Collection[str]]

    @cached_value
    def versions(self) -> Mapping[str, Snapshot]:
        """The tables as they were after the cycle; one that is behind is merged with the present settings."""
        names = sorted({schema.name for schema in self.pipeline.tables} & self.columns.keys())
        versions = {name: version_at(self.pipeline, self.spark, name, self.cycle) for name in names}
        return {name: version for name, version in versions.items() if version is not None}

    def stored_lines(self, ids: DataFrame) -> DataFrame | None:
        """Return lines of what tables have of rows; None where no table has a version of the cycle.

        Args:
            ids: the rows' `table_name` and `keys`, distinct; where they are broadcast, no table is moved.
        """
        lines = [
            self._lines_of(name, ids.where(f"table_name = {quote_text(name)}")) for name in self.versions
        ]
        return reduce(DataFrame.unionByName, lines) if lines else None

    def unknown_lines(self, ids: DataFrame) -> DataFrame:
        """Return a line for each column of a stored row that is NULL because its value is unknown.

        Args:
            ids: `table_name` and `keys` of rows with a NULL column, distinct.
        """
        log = changes_of(read_log(self.pipeline, self.spark), ids, self.columns)
        unknowns = unresolved_values(log, history_through(self.pipeline, self.cycle).observed_since)
        columns = F.array("column_name").alias("unavailable_columns")
        return _lines(unknowns.select(*ROW_ID, columns), UNKNOWN, UNKNOWN_PLACE)

    @cached_value
    def may_be_unknown(self) -> bool:
        """Whether the log may have a change that lacks values: not if its files have only whole rows."""
        return not is_true_throughout(self.pipeline.lake.system_table(LOG), "is_whole_row")

    @cached_property
    def valid_since(self) -> Mapping[tuple[str, str], int]:
        """Times since which changes of the log have values of the current types, by table and column."""
        observations = history_through(self.pipeline, self.cycle).observed_since
        replacements = ((table, name) for table, names in self._replaced_columns.items() for name in names)
        since = {**observations, **dict.fromkeys(replacements, sys.maxsize)}
        return {column: micros for column, micros in since.items() if column[0] in self.columns}

    @cached_property
    def _replaced_columns(self) -> Mapping[str, frozenset[str]]:
        """Columns, by table, whose stored values have another type than the changes of the batch."""
        return replaced_columns(self.pipeline, self.cycle)

    def _lines_of(self, table: str, ids: DataFrame) -> DataFrame:
        """Return lines of rows of one table; none for a row that the table does not have."""
        schema = self.pipeline.stored_schema(table)
        rows = read_table(self.pipeline, self.spark, table, self.versions[table].snapshot_id)
        if keeps_deleted(schema):
            rows = rows.where(f"NOT {DELETED}")
        row_columns = {case_key(name) for name in rows.columns}
        names = {*self.columns[table]} - self._replaced_columns.get(table, NOTHING)
        values = [
            column
            for column in schema.value_columns
            if column.source_name in names and case_key(column.name) in row_columns
        ]
        return _join_keys(rows, _typed_keys(ids.select("keys"), schema), schema, values)


def version_at(pipeline: Pipeline, spark: SparkSession, table: str, cycle: int) -> Snapshot | None:
    """Return the snapshot of a table as it was after a cycle; None if it has none.

    A table that has not reached the cycle is brought there.
    """
    if cycle == 0:
        return None
    merge = merge_tables(pipeline, spark, [pipeline.table(table)])[0]
    stored_table = pipeline.lake.table(table)
    if stored_table is None:
        return None
    snapshot = stored_table.metadata.snapshot_by_id(merge.snapshot_id or -1)
    return snapshot if snapshot is not None and merge.cycle == cycle else head(stored_table)


def _join_keys(
    rows: DataFrame, keys: DataFrame, schema: TableSchema, values: Collection[SourceColumn]
) -> DataFrame:
    # SQL texts: an expression built here would cost a few calls of Spark's JVM, for each of many columns.
    key_names = (quote_spark(column.name) for column in schema.key_columns)
    same = " AND ".join(f"{name} <=> {KEY_PREFIX}{number}" for number, name in enumerate(key_names))
    lake_names = {column.source_name: quote_spark(column.name) for column in values}
    texts = ", ".join(
        f"{_text(lake_names[column.source_name], column.type)} AS {quote_spark(column.source_name)}"
        for column in values
    )
    lines = rows.join(keys, F.expr(same)).selectExpr(
        f"{quote_text(schema.name)} AS table_name",
        f"{ORDINAL} AS keys",
        f"to_json(struct({texts}), map('ignoreNullFields', 'false')) AS new_values"
        if texts
        else "'{}' AS new_values",
        f"{' AND '.join(f'{name} IS NOT NULL' for name in lake_names.values()) or 'true'} AS is_whole_row",
    )
    return _lines(lines, STORED, STORED_PLACE)


def _lines(frame: DataFrame, kind: str, place: int) -> DataFrame:
    return frame.selectExpr("*", f"'{kind}' AS change_kind", f"cast({place} AS bigint) AS ordinal")


def _typed_keys(keys: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the key columns of key texts, each row with its text."""
    log = keys.selectExpr(
        "keys",
        "keys AS ordinal",
        "'delete' AS change_kind",
        "cast(NULL AS string) AS new_values",
        "true AS is_whole_row",
        "cast(NULL AS string) AS transaction_id",
        "cast(NULL AS timestamp) AS commit_timestamp",
    )
    rows = type_changes(log, TableSchema(schema.name, schema.key_columns), has_partial_updates=False)
    names = (quote_spark(column.name) for column in schema.key_columns)
    return rows.selectExpr(*(f"{name} AS {KEY_PREFIX}{number}" for number, name in enumerate(names)), ORDINAL)


def _text(value: str, column_type: ColumnType) -> str:
    """Return SQL for a value as text that casts back to the value, or for an array of such texts."""
    if column_type.code == ARRAY and column_type.element is not None:
        return f"transform({value}, item -> {_text('item', column_type.element)})"
    if column_type.code in {"BYTES", "PROTO"}:
        # Spark breaks base64 into lines.
        return f"translate(base64({value}), '\\r\\n', '')"
    if column_type.code == "TIMESTAMP":
        return f"""date_format({value}, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")"""
    if column_type.code == "DATETIME":
        return f"""date_format({value}, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")"""
    return f"cast({value} AS string)"
