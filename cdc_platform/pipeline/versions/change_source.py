"""The changes from which a table is made or updated: a span of the log, upon its initial copy if any."""

from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.catalog.lake import DELETION_MARKERS
from cdc_platform.lake.state.copies import COPY_BRANCH, CopyProgress
from cdc_platform.lake.state.quarantine import may_lack_changes
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.exclusions import may_lack_rows
from cdc_platform.model.schema.table_options import columns_in_history, keeps_deleted
from cdc_platform.model.schema.table_schema import Column, ColumnLife, TableSchema
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.handover import find_copy
from cdc_platform.pipeline.versions.lake_frames import read_log, read_own
from cdc_platform.pipeline.versions.log_span import LogSpan, pending_span, span_after
from cdc_platform.spark.frames.table_frames import read_current
from cdc_platform.spark.log.faults import HAS_KEYS
from cdc_platform.spark.tables.deletion_markers import with_deletion_markers
from cdc_platform.spark.tables.late import with_former
from cdc_platform.spark.tables.row_versions import called_as_in_history
from cdc_platform.spark.tables.truncates import after_truncates, with_truncated_rows
from cdc_platform.spark.tables.typed import (
    COMMITTED,
    IS_READ,
    KIND,
    ORDINAL,
    TRANSACTION,
    LogWords,
    convert_expression,
    named,
    type_changes,
)

SINGLE_TASK_CHANGES: Final = 50_000
"""Up to so many changes go to one task: a shuffle costs more, and leaves a file for each task."""

COPIED: Final = -2
"""Ordinal of what an initial copy has: it comes before all changes."""
COPIED_KEY: Final = ""
"""The same where the order is that of ordering keys."""


@dataclass(frozen=True)
class ChangeSource:
    """A span of the log, and the rows of an initial copy that lie below it.

    ``schema`` has the columns as these changes set them. What was committed before ``since_micros`` belongs
    to a dropped table of the same name and is left out; ``remade_micros`` are moments at which the table
    was dropped and recreated among the changes that are not left out. With ``keeps_truncated`` it matters
    which rows a truncate took away, and the span begins with the log. With ``is_history`` the columns are
    called as in the table's history. With ``takes_former`` a row is more than its newest change, so that of
    rows of which something comes late the former changes count, too.
    """

    schema: TableSchema
    span: LogSpan
    copy: CopyProgress | None = None
    since_micros: int | None = None
    remade_micros: tuple[int, ...] = ()
    keeps_truncated: bool = False
    is_history: bool = False
    takes_former: bool = False


def whole_span(pipeline: Pipeline, table: str, copy: CopyProgress | None) -> LogSpan:
    """Return all of the log that lies upon the initial copy, or upon nothing where there was none."""
    if copy is None:
        return pending_span(pipeline, table, 0)
    return span_after(pipeline, table, copy.plan.position_micros)


def find_beginning(
    pipeline: Pipeline, table: TableSchema, columns: ColumnHistory | None, *, is_history: bool = False
) -> ChangeSource:
    """Return everything that a table, or its history, is made of.

    Of a history the rows of a dropped table of the same name count, too, but only where the table was
    recreated with the same key.

    Args:
        pipeline: the pipeline.
        table: the table, whose columns count where nothing is known of their history.
        columns: the history of its columns, None where there is none.
        is_history: whether it is the history that is made.

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
    remade = tuple(micros for micros in moments if micros is not None and micros > copied_micros)
    if not remade:
        return source
    if is_history and _has_kept_key(schema):
        return replace(source, remade_micros=remade)
    return replace(source, copy=None, since_micros=remade[-1])


def _has_kept_key(schema: TableSchema) -> bool:
    """Return whether the key of a table is what it was before the table was recreated."""
    names = {column.source_name for column in schema.key_columns}
    has_lost = any(column.is_in_keys and column.source_name not in names for column in schema.value_columns)
    # In a history, a column may have no more than another name.
    always = (column.life in (None, ColumnLife(column.source_name)) for column in schema.key_columns)
    return not has_lost and all(always)


def starts_over(pipeline: Pipeline, table: str, span: LogSpan) -> bool:
    """Return whether a table was dropped and recreated in a span, which ends its rows without any change."""
    columns = pipeline.schema_history.tables.get(table)
    return columns is not None and columns.begun_after(span.after_exclusive) is not None


def trusts_inserts(pipeline: Pipeline, table: str, history: SchemaHistory) -> bool:
    """Return whether a row that the log sees inserted is certainly not in the table.

    It may be where its deletion was left out of the change stream, or lies in quarantine.
    """
    columns = history.tables.get(table)
    if not pipeline.capabilities.trusts_inserts:
        return False
    is_left_out = columns is not None and may_lack_rows(history, columns)
    return not is_left_out and not may_lack_changes(pipeline.lake, table)


def read_span(pipeline: Pipeline, spark: SparkSession, table: str, span: LogSpan) -> DataFrame:
    """Return the rows that the change log has of a table in the cycles of a span."""
    return read_log(pipeline, spark).where(
        (F.col("table_name") == table)
        & (F.col("cycle") > span.after_exclusive)
        & (F.col("cycle") <= span.until_inclusive)
    )


def select_changes(
    pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame
) -> DataFrame:
    """Return the rows of the log that count of what `read_span` returns for a source."""
    if not pipeline.capabilities.hands_out_events:
        # Those of another table, of the same name, whose key has no column, which is not in the lake.
        log = log.where(HAS_KEYS)
    if source.since_micros is not None:
        log = log.where(F.col("commit_timestamp") >= F.lit(to_datetime(source.since_micros)))
    if source.span.after_micros is not None:
        log = log.where(F.col("commit_timestamp") > F.lit(to_datetime(source.span.after_micros)))
    if source.span.has_truncates:
        without = with_truncated_rows if source.keeps_truncated else after_truncates
        log = without(log, words_of(pipeline, source).position)
    return log if pipeline.capabilities.comes_in_order else _with_older(pipeline, spark, source, log)


def words_of(pipeline: Pipeline, source: ChangeSource) -> LogWords:
    """Return what the order of the changes of a source is taken from."""
    return LogWords.of(pipeline.capabilities, is_late=source.span.is_late)


def read_changes(
    pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame, *, has_origin: bool = False
) -> DataFrame:
    """Return the typed changes of a table, with the rows of its initial copy as inserts before all others.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        source: which changes count.
        log: what `read_span` returns for the source.
        has_origin: whether it matters which transaction made a change, and when; a copied row has none.
    """
    log, words = select_changes(pipeline, spark, source, log), words_of(pipeline, source)
    has_partial_updates = source.span.has_partial_updates
    changes = type_changes(
        log, source.schema, has_partial_updates=has_partial_updates, has_origin=has_origin, words=words
    )
    if source.copy is None or source.copy.head is None:
        return changes
    # Read as a branch, the copy has the table's present columns, whatever they were called then.
    rows = read_current(spark, pipeline.lake.spark_table(source.schema.name, COPY_BRANCH))
    if source.is_history:
        rows = called_as_in_history(rows)
    position = F.lit(to_datetime(source.copy.plan.position_micros))
    no_transaction = F.lit(None).cast("string").alias(TRANSACTION)
    origin = [position.alias(COMMITTED), no_transaction, F.lit(True).alias(IS_READ)]
    flags = [F.lit(True).alias(named(column.name)) for column in source.schema.value_columns]
    copied = rows.select(
        F.lit(ChangeKind.INSERT.value).alias(KIND),
        (F.lit(COPIED_KEY) if source.span.is_late else F.lit(COPIED).cast("bigint")).alias(ORDINAL),
        *(origin if has_origin else []),
        *(F.expr(_copied_value(column)).alias(column.name) for column in source.schema.columns),
        *(flags if has_partial_updates else []),
    )
    return changes.unionByName(copied)


def takes_former(pipeline: Pipeline, stored: TableSchema) -> bool:
    """Return whether what comes late may change a row although a newer change of it is known.

    So it is where changes leave values as they are, be it those of a partial update or of a delete that
    stays.
    """
    capabilities = pipeline.capabilities
    if capabilities.comes_in_order:
        return False
    if keeps_deleted(stored):
        return True
    return capabilities.leaves_values_out and pending_span(pipeline, stored.name, 0).has_partial_updates


def _with_older(pipeline: Pipeline, spark: SparkSession, source: ChangeSource, log: DataFrame) -> DataFrame:
    """Return changes with what older cycles know of the same rows, as far as it matters."""
    span = source.span
    if span.after_exclusive == 0:
        return log
    if not source.takes_former:
        return with_deletion_markers(log, _buried(pipeline, spark, source), source.schema)
    before = replace(span, after_exclusive=0, until_inclusive=span.after_exclusive)
    former = read_span(pipeline, spark, source.schema.name, before)
    return with_former(log, former, source.schema, is_small=span.changes <= SINGLE_TASK_CHANGES)


def _buried(pipeline: Pipeline, spark: SparkSession, source: ChangeSource) -> DataFrame:
    graves = read_own(pipeline, spark, DELETION_MARKERS)
    is_older = F.col("cycle") <= source.span.after_exclusive
    return graves.where((F.col("table_name") == source.schema.name) & is_older)


def _copied_value(column: Column) -> str:
    """Return the SQL of a copied value; it was converted where the column has got another type since."""
    before = column.life.before if column.life is not None else None
    if before is None:
        return quote_spark(column.name)
    converted = convert_expression(_copied_value(before), before.type, column.type)
    # A copy that was made after the change has the value itself.
    return f"coalesce({quote_spark(column.name)}, {converted})"
