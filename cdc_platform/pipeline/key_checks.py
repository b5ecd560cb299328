"""The check of keys: each is in its table once."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.lake.cuts import newest_cut
from cdc_platform.model.names import quote_spark
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.pipeline.branch import read_version
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.source_checks import without_cut
from cdc_platform.pipeline.verdict import Scope, Verdict


def check_keys(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> Verdict:
    """Count the keys that a table holds more than once at the newest cut.

    Keys that the log calls new are appended without a look at the table, so this is what a source brings
    about that inserts a row which is there already.
    """
    cut = newest_cut(pipeline.lake)
    if cut is None:
        return without_cut(pipeline)
    repeated = {
        table.name: _repeated_keys(read_version(pipeline, spark, table.name, cut.tables[table.name]), table)
        for table in pipeline.tables
        if table.name in cut.tables
    }
    counts = {name: keys.count() for name, keys in repeated.items()}
    told = "; ".join(
        f"{count} keys of `{name}` are there more than once, such as {repeated[name].head(1)[0][0]}"
        for name, count in counts.items()
        if count
    )
    return Verdict(
        not told, told or f"cut {cut.cut}: every key of {len(counts)} tables is there once", counts
    )


def _repeated_keys(rows: DataFrame, table: TableSchema) -> DataFrame:
    """Return the keys that several rows have, as JSON."""
    names = [F.col(quote_spark(column.name)) for column in table.key_columns]
    return rows.groupBy(*names).count().where(F.col("count") > 1).select(F.to_json(F.struct(*names)))
