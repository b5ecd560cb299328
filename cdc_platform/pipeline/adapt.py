"""Adapting a table of the lake to the history of its source table's columns."""

from collections.abc import Container, Iterator

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits import BRANCH, head
from cdc_platform.lake.copies import load_plans
from cdc_platform.model.evolution import Bound, ColumnVersion, TableHistory
from cdc_platform.model.names import quote_spark
from cdc_platform.model.table_schema import TableSchema, spark_type
from cdc_platform.pipeline.branch import Attempt, load_table, reset_branch
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.spark.merge import create_table_sql
from cdc_platform.spark.typed import convert_expression


def ensure_table(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> Table:
    """Create the table where it is missing, give it the columns that it lacks, and return it.

    A column whose name a newer version has taken is renamed, never dropped. Done again, or by two runs at
    once, it changes nothing more.

    Raises:
        CommitConflict: another run has changed the table's columns at the same time.
    """
    known = pipeline.history.tables.get(schema.name) or _plain_history(schema)
    target = pipeline.lake.spark_table(schema.name)
    found = pipeline.lake.table(schema.name)
    if found is None:
        version = pipeline.settings.lake.table_format_version
        spark.sql(create_table_sql(target, known.whole_schema, version))
        found = load_table(pipeline, schema.name)
    if head(found) is None:
        # A branch can only be reset to a snapshot.
        spark.table(target).limit(0).writeTo(target).append()
        found = load_table(pipeline, schema.name)
    statements = _missing_steps(pipeline, spark, found, known)
    if not statements:
        return found
    try:
        for statement in statements:
            spark.sql(statement)
    except Exception as error:
        after = load_table(pipeline, schema.name)
        if after.metadata.current_schema_id != found.metadata.current_schema_id:
            raise CommitConflict(
                f"Another run changed the columns of `{schema.name}` at the same time; run the tick again."
            ) from error
        raise
    return load_table(pipeline, schema.name)


def _plain_history(schema: TableSchema) -> TableHistory:
    return TableHistory(
        schema.name,
        tuple(
            ColumnVersion(
                column.name, column.name, column.type, column.is_primary_key, column.ordinal, Bound(0, None)
            )
            for column in schema.columns
        ),
    )


def _missing_steps(pipeline: Pipeline, spark: SparkSession, found: Table, known: TableHistory) -> list[str]:
    """Return the statements that give a table the columns of all versions."""
    target = pipeline.lake.spark_table(known.name)
    there = {field.name.casefold() for field in found.schema().fields}
    if all(version.lake_name.casefold() in there for version in known.versions):
        return []
    steps = []
    for version in _held_versions(pipeline, spark, known, there):
        old, new = quote_spark(version.name), quote_spark(version.lake_name)
        steps.append(f"ALTER TABLE {target} RENAME COLUMN {old} TO {new}")
        there = (there - {version.name.casefold()}) | {version.lake_name.casefold()}
    added = [
        f"{quote_spark(version.lake_name)} {spark_type(version.type)}"
        for version in known.versions
        if version.lake_name.casefold() not in there
    ]
    if added:
        steps.append(f"ALTER TABLE {target} ADD COLUMNS ({', '.join(added)})")
    return steps


def _held_versions(
    pipeline: Pipeline, spark: SparkSession, known: TableHistory, there: Container[str]
) -> Iterator[ColumnVersion]:
    """Yield the versions that are to be set aside, and whose values the table has under their old names."""
    plan = load_plans(pipeline.lake).get(known.name)
    copied_micros = plan.position_micros if plan is not None else None
    for field in spark.table(pipeline.lake.spark_table(known.name)).schema.fields:
        text = field.dataType.simpleString()
        held = known.version_held(field.name, text, copied_micros, aside=there)
        if held is not None and held.lake_name.casefold() != field.name.casefold():
            yield held


def convert_stored(
    pipeline: Pipeline, spark: SparkSession, table: str, old: ColumnVersion, new: ColumnVersion
) -> int:
    """Fill a column on the branch, where it has no value, with the converted one of the version before it.

    Returns:
        the number of commits: none where the table has no row.
    """
    before = head(load_table(pipeline, table), BRANCH)
    target = pipeline.lake.spark_table(table, BRANCH)
    column = quote_spark(new.lake_name)
    value = convert_expression(quote_spark(old.lake_name), new.type)
    # All rows: Iceberg cannot filter a branch by a column that is younger than its newest snapshot.
    spark.sql(f"UPDATE {target} SET {column} = coalesce({column}, {value})")
    after = head(load_table(pipeline, table), BRANCH)
    return int(before is None or after is None or before.snapshot_id != after.snapshot_id)


def empty_version(pipeline: Pipeline, spark: SparkSession, table: str) -> Snapshot | None:
    """Return a snapshot of the table without any row, on the branch only."""
    main = head(load_table(pipeline, table))
    if main is not None:
        reset_branch(pipeline, spark, Attempt(table, main, tick=0))
    target = pipeline.lake.spark_table(table, BRANCH)
    spark.table(target).limit(0).writeTo(target).overwrite(F.lit(True))
    return head(load_table(pipeline, table), BRANCH)
