"""The changes that build or update a table: a span of the log, on top of its initial copy if there is one."""

from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.lake.commits.commits import has_at_most, head
from cdc_platform.lake.state.copies import COPY_BRANCH, CopyProgress
from cdc_platform.lake.state.quarantine import may_lack_changes
from cdc_platform.model.base.names import quote_spark, quote_text
from cdc_platform.model.base.stored_names import DELETION_MARKERS
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.exclusions import may_lack_rows
from cdc_platform.model.schema.table_options import columns_in_history, keeps_deleted
from cdc_platform.model.schema.table_schema import Column, ColumnLife, TableSchema
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.handover import find_copy
from cdc_platform.pipeline.versions.lake_frames import read_log, read_own
from cdc_platform.pipeline.versions.log_span import LogSpan, pending_span, span_after
from cdc_platform.spark.frames.casts import convert_expression
from cdc_platform.spark.frames.table_frames import read_current
from cdc_platform.spark.log.faults import HAS_KEYS
from cdc_platform.spark.tables.deletion_markers import with_deletion_markers, with_former
from cdc_platform.spark.tables.log_columns import LogColumns
from cdc_platform.spark.tables.row_versions import called_as_in_history
from cdc_platform.spark.tables.truncates import after_truncates, with_truncated_rows
from cdc_platform.spark.tables.typed_columns import (
    COMMITTED,
    IS_READ,
    KIND,
    ORDINAL,
    TRANSACTION,
    flag_of,
    type_changes,
)

SINGLE_TASK_CHANGES: Final = 50_000
"""Maximum number of changes for a single task: a shuffle costs more, and leaves one file per task."""

COPIED: Final = -2
"""Ordinal of the rows of an initial copy, which come before all changes."""
COPIED_KEY: Final = ""
"""Ordering key of the rows of an initial copy."""


@dataclass(frozen=True)
class ChangeSource:
    """A span of the log, and the rows of an initial copy below it.

    ``schema`` has the columns that these changes set. Changes committed before ``since_micros`` belong to a
    dropped table of the same name and are left out; ``recreated_micros`` are the times at which the table was
    dropped and recreated within the other changes. With ``keeps_truncated``, the rows that a truncate removed
    matter, and the span begins with the log. With ``is_history``, the columns have their names in the table's
    history. With ``takes_former``, a row is more than its newest change: for rows with late changes, earlier
    changes count, too.
    """

    schema: TableSchema
    span: LogSpan
    copy: CopyProgress | None = None
    since_micros: int | None = None
    recreated_micros: tuple[int, ...] = ()
    keeps_truncated: bool = False
    is_history: bool = False
    takes_former: bool = False


def whole_span(pipeline: Pipeline, table: str, copy: CopyProgress | None) -> LogSpan:
    """Return the whole log after the initial copy, or from its beginning without a copy."""
    if copy is None:
        return pending_span(pipeline, table, 0)
    return span_after(pipeline, table, copy.plan.position_micros)


def find_beginning(
    pipeline: Pipeline, table: TableSchema, columns: ColumnHistory | None, *, is_history: bool = False
) -> ChangeSource:
    """Return all changes that make up a table or its history.

    A history also contains the rows of a dropped table of the same name, if the table was recreated with the
    same key.

    Args:
        pipeline: the pipeline.
        table: the table, whose columns count if their history is unknown.
        columns: the history of its columns, None without one.
        is_history: whether to build the table's history.

    Raises:
        LakeError: there was an initial copy, but it is gone.
    """
    copy = find_copy(pipeline, load_table(pipeline, table.name), table.name)
    span = whole_span(pipeline, table.name, copy)
    if columns is None or not columns.versions:
        return ChangeSource(table, span, copy, is_history=is_history)
    columns = columns_in_history(columns) if is_history else columns
    schema = columns.schema_after(span.after_exclusive)
    span = replace(span, has_partial_updates=span.has_partial_updates or schema.is_evolving)
    source = ChangeSource(schema, span, copy, is_history=is_history)
    copied_micros = copy.plan.position_micros if copy is not None else -1
    moments = (beginning.micros for beginning in columns.beginnings)
    recreations = tuple(micros for micros in moments if micros is not None and micros > copied_micros)
    if not recreations:
        return source
    if is_history and _has_kept_key(schema):
        return replace(source, recreated_micros=recreations)
    return replace(source, copy=None, since_micros=recreations[-1])


def _has_kept_key(schema: TableSchema) -> bool:
    """Return whether a recreated table has the same key as before."""
    names = {column.source_name for column in schema.key_columns}
    has_lost = any(column.is_in_keys and column.source_name not in names for column in schema.value_columns)
    # In a history, a column may only differ in its name.
    always = (column.life in (None, ColumnLife(column.source_name)) for column in schema.key_columns)
    return not has_lost and all(always)


def starts_over(pipeline: Pipeline, table: str, span: LogSpan) -> bool:
    """Return whether a table was dropped and recreated in a span, which removes its rows without changes."""
    columns = pipeline.schema_history.tables.get(table)
    return columns is not None and columns.beginning_after(span.after_exclusive) is not None


def trusts_inserts(pipeline: Pipeline, table: str, history: SchemaHistory) -> bool:
    """Return whether a row that the log inserts is certainly not in the table.

    It may be in the table if the change stream left out its deletion, or if quarantine has it.
    """
    columns = history.tables.get(table)
    if not pipeline.capabilities.trusts_inserts:
        return False
    is_left_out = columns is not None and may_lack_rows(history, columns)
    return not is_left_out and not may_lack_changes(pipeline.lake, table)


def read_span(pipeline: Pipeline, spark: SparkSession, table: str, span: LogSpan) -> DataFrame:
    """Return the rows of the change log for a table in the cycles of a span."""
    cycles = f"cycle > {span.after_exclusive} AND cycle <= {span.until_inclusive}"
    return read_log(pipeline, spark).where(f"table_name = {quote_text(table)} AND {cycles}")


def select_changes(
    pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame
) -> DataFrame:
    """Return the rows of `read_span` that count for a source."""
    if not pipeline.capabilities.delivers_events:
        # Leaves out changes of another table of the same name, without key columns, which is not in the lake.
        log = log.where(HAS_KEYS)
    if source.since_micros is not None:
        log = log.where(F.col("commit_timestamp") >= F.lit(to_datetime(source.since_micros)))
    if source.span.after_micros is not None:
        log = log.where(F.col("commit_timestamp") > F.lit(to_datetime(source.span.after_micros)))
    if source.span.has_truncates:
        without = with_truncated_rows if source.keeps_truncated else after_truncates
        log = without(log, log_columns_of(pipeline, source).position)
    return log if pipeline.capabilities.comes_in_order else _with_older(pipeline, spark, source, log)


def log_columns_of(pipeline: Pipeline, source: ChangeSource) -> LogColumns:
    """Return the columns that define the order of the changes of a source."""
    return LogColumns.of(pipeline.capabilities, is_late=source.span.is_late)


def read_changes(
    pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame, *, has_origin: bool = False
) -> DataFrame:
    """Return the typed changes of a table, with the rows of its initial copy as inserts before them.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        source: selection of the changes.
        log: the result of `read_span` for the source.
        has_origin: whether to include the transaction and the time of changes; a copied row has none.
    """
    log, words = select_changes(pipeline, spark, source, log), log_columns_of(pipeline, source)
    has_partial_updates = source.span.has_partial_updates
    changes = type_changes(
        log, source.schema, has_partial_updates=has_partial_updates, has_origin=has_origin, words=words
    )
    if source.copy is None or source.copy.head is None:
        return changes
    # Read as a branch, the copy has the present names of the table's columns.
    rows = read_current(spark, pipeline.lake.spark_table(source.schema.name, COPY_BRANCH))
    if source.is_history:
        rows = called_as_in_history(rows)
    position = F.lit(to_datetime(source.copy.plan.position_micros))
    no_transaction = F.lit(None).cast("string").alias(TRANSACTION)
    origin = [position.alias(COMMITTED), no_transaction, F.lit(True).alias(IS_READ)]
    flags = [F.lit(True).alias(flag_of(column.name)) for column in source.schema.value_columns]
    copied_rows = rows.select(
        F.lit(ChangeKind.INSERT.value).alias(KIND),
        (F.lit(COPIED_KEY) if source.span.is_late else F.lit(COPIED).cast("bigint")).alias(ORDINAL),
        *(origin if has_origin else []),
        *(F.expr(_copied_value(column)).alias(column.name) for column in source.schema.columns),
        *(flags if has_partial_updates else []),
    )
    return changes.unionByName(copied_rows)


def takes_former(pipeline: Pipeline, schema: TableSchema) -> bool:
    """Return whether a late change may affect a row that has newer changes.

    It may if changes keep some values of the row, such as partial updates and soft deletes.
    """
    capabilities = pipeline.capabilities
    if capabilities.comes_in_order:
        return False
    if keeps_deleted(schema):
        return True
    may_keep = capabilities.leaves_values_out or capabilities.may_be_documents(schema)
    return may_keep and pending_span(pipeline, schema.name, 0).has_partial_updates


def _with_older(pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame) -> DataFrame:
    """Return changes with the relevant changes of the same rows in older cycles."""
    span = source.span
    if span.after_exclusive == 0:
        return log
    if not source.takes_former:
        return _with_markers(pipeline, spark, source, log)
    before = replace(span, after_exclusive=0, until_inclusive=span.after_exclusive)
    former = read_span(pipeline, spark, source.schema.name, before)
    return with_former(log, former, source.schema, is_small=span.changes <= SINGLE_TASK_CHANGES)


def _with_markers(pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame) -> DataFrame:
    table, span = pipeline.lake.system_table(DELETION_MARKERS), source.span
    newest = head(table)
    if has_at_most(newest, 0):
        return log
    of_table = F.col("table_name") == source.schema.name
    markers = read_own(pipeline, spark, DELETION_MARKERS, table).where(
        of_table & (F.col("cycle") <= span.after_exclusive)
    )
    is_small = span.changes <= SINGLE_TASK_CHANGES and has_at_most(newest, SINGLE_TASK_CHANGES)
    return with_deletion_markers(log, markers, source.schema, is_small=is_small)


def _copied_value(column: Column) -> str:
    """Return the SQL of a copied value, converted if the column has changed its type since."""
    before = column.life.before if column.life is not None else None
    if before is None:
        return quote_spark(column.name)
    conversion = convert_expression(_copied_value(before), before.type, column.type)
    # A copy from after the type change has the value itself.
    return f"coalesce({quote_spark(column.name)}, {conversion})"
