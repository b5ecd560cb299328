"""Checks that read whole tables at the newest cut."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.copies import COPY_BRANCH
from cdc_platform.lake.cuts import newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.model.changes import ChangeKind
from cdc_platform.model.evolution import TableHistory
from cdc_platform.model.names import quote_spark
from cdc_platform.model.table_schema import Column, TableSchema
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.pipeline.branch import load_table
from cdc_platform.pipeline.handover import find_copy
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.proof import history_at
from cdc_platform.pipeline.source_checks import without_cut
from cdc_platform.pipeline.verdict import Scope, Verdict
from cdc_platform.spark.fold import ACTION, APPEND, fold_changes
from cdc_platform.spark.typed import KIND, ORDINAL, convert_expression, named, type_changes, unfit_values


def check_fold(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> Verdict:
    """Compare every table at the newest cut with the fold of the whole log up to it."""
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    log = spark.table(pipeline.lake.spark_system_table(LOG)).where(F.col("tick") <= cut.tick)
    history = history_at(pipeline, cut.tick)
    differing = {
        table.name: _count_differences(
            pipeline,
            spark,
            history.tables.get(table.name, TableHistory(table.name)),
            table,
            cut.tables[table.name],
            log,
        )
        for table in pipeline.tables
        if table.name in cut.tables
    }
    total = sum(differing.values())
    return Verdict(
        total == 0,
        f"cut {cut.cut}: {total} rows differ from the fold of the log upon the initial copies",
        dict(differing),
    )


def _count_differences(
    pipeline: Pipeline,
    spark: SparkSession,
    known: TableHistory,
    table: TableSchema,
    snapshot_id: int,
    log: DataFrame,
) -> int:
    schema = known.schema_after(0) if known.versions else table
    rows = log.where(F.col("table_name") == table.name)
    if known.begun is not None and known.begun.micros is not None:
        rows = rows.where(F.col("commit_timestamp") >= F.lit(to_datetime(known.begun.micros)))
    changes = _changes_upon_copy(pipeline, spark, schema, rows)
    names = [F.col(quote_spark(column.name)) for column in schema.columns]
    folded = fold_changes(changes, schema, has_patches=True).where(F.col(ACTION) == APPEND).select(*names)
    stored = _version(pipeline, spark, table, snapshot_id).select(*names)
    with unfit_values():
        return folded.exceptAll(stored).count() + stored.exceptAll(folded).count()


def _changes_upon_copy(
    pipeline: Pipeline, spark: SparkSession, table: TableSchema, log: DataFrame
) -> DataFrame:
    """Return a table's typed changes, with the rows of its initial copy as inserts before all others."""
    copy = find_copy(pipeline, load_table(pipeline, table.name), table.name)
    if copy is None:
        return type_changes(log, table, has_patches=True)
    log = log.where(F.col("commit_timestamp") > F.lit(to_datetime(copy.plan.position_micros)))
    changes = type_changes(log, table, has_patches=True)
    if copy.head is None:
        return changes
    # Read as a branch, the copy has the table's present columns, whatever they were called then.
    rows = spark.table(pipeline.lake.spark_table(table.name, COPY_BRANCH))
    inserts = rows.select(
        F.lit(ChangeKind.INSERT.value).alias(KIND),
        F.lit(-1).cast("bigint").alias(ORDINAL),
        *(F.expr(_copied_value(column)).alias(column.name) for column in table.columns),
        *(F.lit(True).alias(named(column.name)) for column in table.value_columns),
    )
    return changes.unionByName(inserts)


def _copied_value(column: Column) -> str:
    """Return the SQL of a copied value; it was converted where the column has got another type since."""
    before = column.life.before if column.life is not None else None
    if before is None:
        return quote_spark(column.name)
    converted = convert_expression(_copied_value(before), column.type)
    # A copy that was made after the change has the value itself.
    return f"coalesce({quote_spark(column.name)}, {converted})"


def _version(pipeline: Pipeline, spark: SparkSession, table: TableSchema, snapshot_id: int) -> DataFrame:
    reader = spark.read.option("versionAsOf", str(snapshot_id))
    return reader.table(pipeline.lake.spark_table(table.name))


def check_keys(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> Verdict:
    """Count the keys that a table holds more than once at the newest cut.

    Keys that the log calls new are appended without a look at the table, so this is what a source brings
    about that inserts a row which is there already.
    """
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    repeated = {
        table.name: _repeated_keys(_version(pipeline, spark, table, cut.tables[table.name]), table)
        for table in pipeline.tables
        if table.name in cut.tables
    }
    found = {name: [str(row[0]) for row in keys.collect()] for name, keys in repeated.items()}
    told = "; ".join(
        f"{len(keys)} keys of `{name}` are there more than once, such as {keys[0]}"
        for name, keys in found.items()
        if keys
    )
    facts = {name: len(keys) for name, keys in found.items()}
    return Verdict(not told, told or f"cut {cut.cut}: every key of {len(found)} tables is there once", facts)


def _repeated_keys(rows: DataFrame, table: TableSchema) -> DataFrame:
    """Return the keys that several rows have, as JSON."""
    names = [F.col(quote_spark(column.name)) for column in table.key_columns]
    return rows.groupBy(*names).count().where(F.col("count") > 1).select(F.to_json(F.struct(*names)))
