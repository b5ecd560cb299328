"""Adapting a table of the lake to the history of its source table's columns."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.commits import BRANCH, conflicts_as, head
from cdc_platform.lake.commits.declared_keys import declare_key
from cdc_platform.lake.commits.new_tables import create_table
from cdc_platform.lake.local_writer.local_table import commit_first
from cdc_platform.lake.state.copies import load_plans
from cdc_platform.model.base.names import case_key, lake_table_name, quote_spark
from cdc_platform.model.schema.column_versions import Bound, ColumnHistory, ColumnVersion, Conversion
from cdc_platform.model.schema.table_options import (
    DELETED,
    IS_CURRENT,
    columns_in_history,
    history_schema,
    source_schema,
    stored_schema,
)
from cdc_platform.model.schema.table_schema import PRIMARY_KEY, TableSchema, spark_type
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.spark.frames.casts import convert_expression
from cdc_platform.spark.frames.table_frames import read_current
from cdc_platform.visible import visible_line


def ensure_table(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Table:
    """Create a table if it is missing, add the columns that it lacks, and return it.

    If a newer version takes a column's name, the column is renamed, never dropped. The function is
    idempotent, even if two runs call it at once.

    Raises:
        CommitConflict: another run has changed the table's columns at the same time.
    """
    columns = _known_columns(pipeline, schema)
    lake_schema = stored_schema(columns.whole_schema, pipeline.options(schema.name))
    lake_table = _ensure(pipeline, spark, columns, lake_schema)
    keys = [column.name for column in lake_schema.key_columns]
    return describe_columns(lake_table, keys, source_comments(pipeline, schema.name))


def source_comments(pipeline: Pipeline, table: str) -> Mapping[str, str]:
    """Return the source's comments of a table's columns, by name; empty if it does not state comments."""
    return pipeline.event_source.comments(table) if pipeline.capabilities.delivers_events else {}


def ensure_history(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Table:
    """Do the same for the history of a table, which has all columns of the table, some with other names.

    Current versions are separate from ended ones: a cycle, or a reader of current rows, then costs as much as
    for the table, for any length of the history.

    Raises:
        CommitConflict: another run has changed the history's columns at the same time.
    """
    columns = columns_in_history(_known_columns(pipeline, schema))
    return _ensure(pipeline, spark, columns, history_schema(columns.whole_schema), IS_CURRENT)


def _ensure(
    pipeline: Pipeline, spark: SparkSession, columns: ColumnHistory, schema: TableSchema, *partition: str
) -> Table:
    lake_table = _find_or_create(pipeline, schema, *partition)
    statements = _missing_steps(pipeline, spark, lake_table, columns, schema)
    try:
        for statement in statements:
            spark.sql(statement)
    except Exception as error:
        after = load_table(pipeline, schema.name)
        if after.metadata.current_schema_id != lake_table.metadata.current_schema_id:
            raise CommitConflict(
                f"Another run changed the columns of `{schema.name}` at the same time; run the cycle again."
            ) from error
        raise
    if statements:
        lake_table = load_table(pipeline, schema.name)
    keyed_table = declare_key(lake_table, [column.name for column in schema.key_columns])
    return _with_snapshot(pipeline, spark, keyed_table, schema.name)


def make_table(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Table:
    """Return the table for an initial copy, created if it is missing, with a first snapshot.

    Its key is declared once the copy is complete: until then, the key may contain NULLs.
    """
    lake_table = _find_or_create(pipeline, schema)
    return _with_snapshot(pipeline, spark, lake_table, schema.name)


def _find_or_create(pipeline: Pipeline, schema: TableSchema, *partition: str) -> Table:
    lake_table = pipeline.lake.table(schema.name)
    if lake_table is not None:
        return lake_table
    lake, identifier = pipeline.lake, (pipeline.lake.pipeline, lake_table_name(schema.name))
    create_table(lake.catalog, identifier, schema, pipeline.settings.lake.table_format_version, *partition)
    new_table = pipeline.lake.table(schema.name)
    if new_table is None:
        # The source has dropped the table, and another run has removed it.
        raise CommitConflict(f"Another run has removed `{schema.name}`; the next cycle continues from there.")
    return new_table


def _with_snapshot(pipeline: Pipeline, spark: SparkSession, lake_table: Table, table: str) -> Table:
    if head(lake_table) is not None:
        return lake_table
    # A branch can only be reset to a snapshot.
    if not commit_first(lake_table):
        target = pipeline.lake.spark_table(table)
        read_current(spark, target).limit(0).writeTo(target).append()
    return load_table(pipeline, table)


def _known_columns(pipeline: Pipeline, schema: TableSchema) -> ColumnHistory:
    return pipeline.schema_history.tables.get(schema.name) or _plain_history(source_schema(schema))


def _plain_history(schema: TableSchema) -> ColumnHistory:
    return ColumnHistory(
        schema.name,
        tuple(
            ColumnVersion(
                column.name, column.name, column.type, column.is_primary_key, column.ordinal, Bound(0, None)
            )
            for column in schema.columns
        ),
    )


def _missing_steps(
    pipeline: Pipeline, spark: SparkSession, lake_table: Table, columns: ColumnHistory, schema: TableSchema
) -> list[str]:
    """Return the statements that add the columns of all versions and of the options to a table."""
    target = pipeline.lake.spark_table(schema.name)
    stored_names = {case_key(field.name) for field in lake_table.schema().fields}
    if all(case_key(column.name) in stored_names for column in schema.columns):
        return []
    steps = []
    past_names = {case_key(field.name) for past in lake_table.metadata.schemas for field in past.fields}
    for name, version in _stored_versions(pipeline, spark, columns, target, past_names):
        former_name, new_name = quote_spark(name), quote_spark(version.lake_name)
        steps.append(f"ALTER TABLE {target} RENAME COLUMN {former_name} TO {new_name}")
        stored_names = (stored_names - {case_key(name)}) | {case_key(version.lake_name)}
    additions = [
        f"{quote_spark(column.name)} {spark_type(column.type)}"
        for column in schema.columns
        if case_key(column.name) not in stored_names
    ]
    if additions:
        steps.append(f"ALTER TABLE {target} ADD COLUMNS ({', '.join(additions)})")
    return steps


def _stored_versions(
    pipeline: Pipeline, spark: SparkSession, columns: ColumnHistory, target: str, past_names: Container[str]
) -> Iterator[tuple[str, ColumnVersion]]:
    """Yield the versions to set aside, each with its present name in the table."""
    plan = load_plans(pipeline.lake).get(columns.name)
    copied_micros = plan.position_micros if plan is not None else None
    for field in read_current(spark, target).schema.fields:
        text = field.dataType.simpleString()
        version = columns.version_stored(field.name, text, copied_micros, past_names)
        if version is not None and case_key(version.lake_name) != case_key(field.name):
            yield field.name, version


def convert_stored(
    pipeline: Pipeline, spark: SparkSession, table: str, conversions: Sequence[Conversion]
) -> int:
    """Fill empty values of columns on the branch with the converted values of their previous versions.

    One statement fills all columns, because each statement rewrites all rows.

    Returns:
        the number of commits: 0 if the table has no rows, or nothing needs a conversion.
    """
    if not conversions:
        return 0
    conversions_made: dict[str, str] = {}
    for old, new in conversions:
        # A column may change its type twice, and an update does not see the result of the first conversion.
        before, column = (
            conversions_made.get(old.lake_name, quote_spark(old.lake_name)),
            quote_spark(new.lake_name),
        )
        value = convert_expression(before, old.type, new.type, is_widened=new.is_widened)
        conversions_made[new.lake_name] = f"coalesce({column}, {value})"
    return _update_all(
        pipeline,
        spark,
        table,
        ", ".join(f"{quote_spark(name)} = {value}" for name, value in conversions_made.items()),
    )


def mark_not_deleted(pipeline: Pipeline, spark: SparkSession, table: str) -> int:
    """Mark all rows on the branch as not deleted: they are older than the column for that.

    Returns:
        the number of commits: 0 if the table has no rows.
    """
    return _update_all(pipeline, spark, table, f"{quote_spark(DELETED)} = false")


def _update_all(pipeline: Pipeline, spark: SparkSession, table: str, assignments: str) -> int:
    before = head(load_table(pipeline, table), BRANCH)
    # All rows: Iceberg cannot filter a branch by a column that is younger than its newest snapshot.
    spark.sql(f"UPDATE {pipeline.lake.spark_table(table, BRANCH)} SET {assignments}")
    after = head(load_table(pipeline, table), BRANCH)
    return int(before is None or after is None or before.snapshot_id != after.snapshot_id)


COMMENT: Final = "comment"
"""Table property that Spark and Trino show as the comment of a table."""
MAX_DOC_CHARACTERS: Final = 255
"""Maximum number of characters of a column's comment: the limit of catalogs such as Glue and Hive."""


def _new_docs(table: Table, keys: Collection[str], comments: Mapping[str, str]) -> dict[str, str]:
    """Return the comments of columns that differ from those of the table, by the table's names."""
    texts = {case_key(name): visible_line(" ".join(text.split())) for name, text in comments.items()}
    marks = {case_key(name): PRIMARY_KEY for name in keys}
    changes = {}
    for field in table.schema().fields:
        name = case_key(field.name)
        doc = ": ".join(filter(None, (marks.get(name), texts.get(name))))
        if len(doc) > MAX_DOC_CHARACTERS:
            doc = f"{doc[: MAX_DOC_CHARACTERS - 1]}…"
        if doc != (field.doc or ""):
            changes[field.name] = doc
    return changes


def describe_columns(table: Table, keys: Collection[str], comments: Mapping[str, str]) -> Table:
    """Give a merged table the comments of its source, by column, and return the changed table.

    The table's own comment is that of ""; without comments, the table keeps those that it has. Key columns
    are still marked, in front of their comment. A comment becomes one line of limited length. The call is
    idempotent.

    Raises:
        CommitConflict: another run has changed the table's columns at the same time.
    """
    if not comments:
        return table
    changes = _new_docs(table, keys, comments)
    own = comments.get("", "")
    if not changes and own == table.properties.get(COMMENT, ""):
        return table
    conflict = (
        f"Another run changed the columns of `{'.'.join(table.name())}` at the same time; repeat the run."
    )
    with conflicts_as(conflict), table.transaction() as transaction:
        transaction.set_properties({COMMENT: own})
        with transaction.update_schema() as update:
            for name, doc in changes.items():
                update.update_column((name,), doc=doc)
    return table.refresh()
