"""Check that the positions of a source's log follow the source's clock."""

from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc_platform.model.base.timestamps import MICROS_PER_S, to_rfc3339
from cdc_platform.pipeline.checks.check_result import SHOWN, CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.lake_frames import read_log

SET_BACK_S: Final = 3600.0
"""Time by which a source's clock may be set back without a warning."""
ADVICE: Final = (
    "The source's log may have started over, as after a failover, so that all later changes lose to earlier "
    "ones. Declare the moment in `epochs` of a new pipeline with a new lake; or declare a coming moment and "
    "`backfill_policy: force`, and backfill the tables after it"
)


def check_order(pipeline: Pipeline, spark: SparkSession, _scope: Scope) -> CheckResult:
    """Count rows whose change with the greatest position is older, by the clock, than another one."""
    overtaken_rows = _overtaken_rows(pipeline, spark)
    examples = overtaken_rows.groupBy("table_name").agg(
        F.count("*").alias("rows"), F.min(F.struct("keys", "counting", "newest")).alias("first")
    )
    tables = sorted(examples.collect(), key=lambda row: str(row["table_name"]))
    sentences = [_describe(row) for row in tables[:SHOWN]]
    return CheckResult(
        passed=not tables,
        summary=f"{'; '.join(sentences)}. {ADVICE}" if tables else "positions follow the source's clock",
        facts={"overtaken": sum(int(row["rows"]) for row in tables)},
    )


def _overtaken_rows(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the rows by table and key, with the microseconds of the change that counts and of the newest."""
    is_place = F.col("ordering_key").like(pipeline.capabilities.log_places or "")
    micros = F.unix_micros("source_timestamp")
    # A forced backfill counts, whatever the positions before it are.
    rows = read_log(pipeline, spark).groupBy("table_name", "keys")
    newest = rows.agg(
        F.max_by(F.when(is_place, micros), "ordering_key").alias("counting"),
        F.max(F.when(is_place, micros)).alias("newest"),
    )
    return newest.where(F.col("newest") - F.col("counting") > SET_BACK_S * MICROS_PER_S)


def _describe(row: Row) -> str:
    keys, counting, newest = row["first"]
    return (
        f"{row['rows']:,} rows of `{row['table_name']}` have a newer change than the one that counts, such "
        f"as {keys}: the one of {to_rfc3339(counting)} counts, not that of {to_rfc3339(newest)}"
    )
