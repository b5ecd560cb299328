"""Counts of equal rows in tables without a key, before the batch that changes them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.model.rows.keyless import COPY, ROW
from cdc_platform.model.schema.table_options import DELETED, keeps_deleted
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.completing.stored_rows import version_at
from cdc_platform.pipeline.merging.local_merge import find_local, is_much
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.lake_frames import read_table
from cdc_platform.spark.frames.columns import col
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.log.keyless import count_in_log, count_in_table
from cdc_platform.spark.log.ordered_rows import RowCopies


@dataclass(frozen=True)
class _StoredTable:
    """A table in the lake; `row` and `copy` are its columns of these names."""

    schema: TableSchema
    version: Snapshot
    row: str
    copy: str

    @property
    def deletion_columns(self) -> list[str]:
        """The column that marks deleted rows, if the table keeps them."""
        return [DELETED] if keeps_deleted(self.schema) else []


@dataclass(frozen=True)
class EqualRows:
    """Counter of equal rows in the tables, or in the log before the tables exist.

    Args:
        pipeline: the pipeline.
        spark: Spark session.
        cycle: cycle of the log that the tables must have reached; tables that lag behind are brought there.
        log: the change log up to that cycle.
    """

    pipeline: Pipeline
    spark: SparkSession
    cycle: int
    log: DataFrame

    def count(self, rows: DataFrame) -> DataFrame:
        """Return the number of equal rows of each row, as `table_name`, `row` and `count`.

        Args:
            rows: `table_name` and `row`, distinct; at least one.
        """
        tables = [row[0] for row in rows.select("table_name").distinct().collect()]
        matches = {table: stored_rows for table in tables if (stored_rows := self._find(table)) is not None}
        parts = [
            count_in_table(table, self._frame(stored_rows), rows) for table, stored_rows in matches.items()
        ]
        other_tables = [table for table in tables if table not in matches]
        if other_tables:
            parts.append(count_in_log(self.log, rows.where(F.col("table_name").isin(other_tables))))
        return reduce(DataFrame.unionByName, parts)

    def count_few(self, rows: Mapping[str, Collection[str]]) -> dict[RowCopies, int]:
        """Return the number of equal rows of each of a few rows, by table and row; none is left out."""
        counts, remaining = dict[RowCopies, int](), list[RowCopies]()
        for table, row_texts in rows.items():
            stored_table = self._find(table)
            local_counts = self._count_locally(stored_table, row_texts) if stored_table is not None else None
            if local_counts is None:
                remaining += [(table, row) for row in row_texts]
            else:
                counts |= {(table, row): count for row, count in local_counts.items()}
        if remaining:
            names, texts = map(list, zip(*remaining, strict=True))
            frame = self.count(local_frame(self.spark, pa.table({"table_name": names, "row": texts})))
            counts |= {(row["table_name"], row["row"]): row["count"] for row in frame.collect()}
        return counts

    def _find(self, table: str) -> _StoredTable | None:
        """Return a table as it was after the cycle; None if it has no such version without a key."""
        if all(schema.name != table for schema in self.pipeline.tables):
            return None
        version = version_at(self.pipeline, self.spark, table, self.cycle)
        if version is None:
            return None
        schema = self.pipeline.stored_schema(table)
        names = {column.source_name: column.name for column in schema.key_columns}
        return _StoredTable(schema, version, names[ROW], names[COPY]) if names.keys() == {ROW, COPY} else None

    def _frame(self, table: _StoredTable) -> DataFrame:
        rows = read_table(self.pipeline, self.spark, table.schema.name, table.version.snapshot_id)
        for column in table.deletion_columns:
            rows = rows.where(~F.col(column))
        row, copy = (col(name) for name in (table.row, table.copy))
        return rows.select(row.alias("row"), copy.alias("copy"))

    def _count_locally(self, table: _StoredTable, row_texts: Collection[str]) -> dict[str, int] | None:
        """Count without Spark; None if the table is too large for that."""
        local = find_local(self.pipeline, table.schema, table.version)
        if local is None:
            return None
        keys, columns = pa.table({table.row: sorted(row_texts)}), [table.copy, *table.deletion_columns]
        within = local.candidate_files(keys)
        if is_much(local.table, within, keys, columns):
            return None
        rows = local.read(local.find(within, keys), [table.row, *columns])
        for column in table.deletion_columns:
            rows = rows.filter(pc.invert(rows[column]))
        counts = rows.group_by(table.row).aggregate([(table.copy, "max")])
        numbers = counts[f"{table.copy}_max"].to_pylist()
        return dict(zip(counts[table.row].to_pylist(), numbers, strict=True))
