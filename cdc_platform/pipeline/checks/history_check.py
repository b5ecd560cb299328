"""Faults of a history at a cut: overlaps, and versions that contradict the table or the log."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.table_options import (
    DELETED,
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    history_name,
    history_schema,
    keeps_deleted,
)
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.soft_delete import stored_at
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.change_source import find_beginning, read_changes
from cdc_platform.pipeline.versions.lake_frames import read_table
from cdc_platform.spark.frames.columns import col
from cdc_platform.spark.tables.row_versions import called_as_in_history, find_misdated, make_versions


@dataclass(frozen=True)
class HistoryFaults:
    """Numbers of versions of one history that break a rule.

    Args:
        versions: all versions, for comparison.
        overlapping: versions that last into the next one of their key, end before they begin, or are
            marked as current although they have an end, or the other way round.
        current_differing: rows that the table and the current versions do not have in common.
        log_differing: versions that the history and the net changes of the log do not have in common.
        misdated: captured changes for which no version begins at the time of the change.
    """

    versions: int
    overlapping: int
    current_differing: int
    log_differing: int
    misdated: int

    @property
    def total(self) -> int:
        """Number of all faults."""
        return self.overlapping + self.current_differing + self.log_differing + self.misdated


def find_faults(
    pipeline: Pipeline,
    spark: SparkSession,
    table: TableSchema,
    column_history: ColumnHistory | None,
    cut: Cut,
    log: DataFrame,
) -> HistoryFaults:
    """Compare the history of a table with its own rules, with the table, and with the log, at one cut.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        table: source table; the cut names it and its history.
        column_history: the history of its columns at the cut, None without one.
        cut: the cut to check.
        log: the change log up to the cut.
    """
    source = find_beginning(pipeline, table, column_history, is_history=True)
    source = replace(source, span=replace(source.span, has_partial_updates=True), keeps_truncated=True)
    columns = [col(column.name) for column in source.schema.columns]
    all_columns = [col(column.name) for column in history_schema(source.schema).columns]
    history = _at(pipeline, spark, history_name(table.name), cut)
    current = history.where(IS_CURRENT).select(*columns)
    rows = called_as_in_history(_at(pipeline, spark, table.name, cut))
    if keeps_deleted(stored_at(pipeline, table, cut.tables[table.name])):
        rows = rows.where(~col(DELETED))
    changes = read_changes(
        pipeline, spark, source, log.where(F.col("table_name") == table.name), has_origin=True
    )
    versions = make_versions(
        changes, source.schema, has_partial_updates=True, recreated_micros=source.recreated_micros
    ).select(*all_columns)
    total, overlapping = _count_versions(history, source.schema)
    return HistoryFaults(
        versions=total,
        overlapping=overlapping,
        current_differing=count_differing(current, rows.select(*columns)),
        log_differing=count_differing(history.select(*all_columns), versions),
        misdated=find_misdated(history, changes, source.schema).count(),
    )


def _count_versions(history: DataFrame, table: TableSchema) -> tuple[int, int]:
    """Return the number of versions, and of versions that overlap or contradict themselves."""
    keys = [col(column.name) for column in table.key_columns]
    # A version that is valid for no time comes before the one that begins when it ends.
    of_key = Window.partitionBy(*keys).orderBy(col(VALID_FROM), col(VALID_TO).asc_nulls_last())
    next_from = F.lead(VALID_FROM).over(of_key)
    lasts_too_long = next_from.isNotNull() & (col(VALID_TO).isNull() | (col(VALID_TO) > next_from))
    is_wrong = (
        F.coalesce(col(VALID_TO) < col(VALID_FROM), F.lit(False))
        | (col(IS_CURRENT) != col(VALID_TO).isNull())
        | col(VALID_FROM).isNull()
    )
    versions = history.select((lasts_too_long | is_wrong).alias("is_wrong"))
    ((total, overlapping),) = versions.agg(F.count("*"), F.count_if("is_wrong")).collect()
    return int(total), int(overlapping)


def _at(pipeline: Pipeline, spark: SparkSession, name: str, cut: Cut) -> DataFrame:
    return read_table(pipeline, spark, name, cut.tables[name])


MORE: Final = "__more"
"""Column with the number of additional copies of a row in the left frame."""


def count_differing(left: DataFrame, right: DataFrame) -> int:
    """Return the number of rows that are in only one of two frames; duplicates count separately.

    Both have the same columns in the same order. Each is computed only once, unlike with two `exceptAll`.
    """
    names = [col(name) for name in left.columns]
    signed = [frame.select("*", F.lit(sign).alias(MORE)) for frame, sign in ((left, 1), (right, -1))]
    sums = reduce(DataFrame.union, signed).groupBy(*names).agg(F.sum(MORE).alias(MORE))
    ((row_count,),) = sums.agg(F.coalesce(F.sum(F.abs(MORE)), F.lit(0))).collect()
    return int(row_count)
