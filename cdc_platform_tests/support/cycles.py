"""Cycles of a pipeline until all is read, and what they leave: rows, and checks that fail."""

from typing import TYPE_CHECKING, Any

from cdc_platform.model.schema.table_options import ORDERING_KEY
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.invariants import QUARANTINE_EMPTY, checks_of
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform_tests.support.pipelines import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sync(pipeline: Pipeline, spark: "SparkSession") -> Pipeline:
    """Run cycles until all files that there are have been read, as if in a separate process."""
    pipeline = open_pipeline(pipeline.settings)
    while run_cycle(pipeline, spark).read.committed:
        pass
    return pipeline


def found_rows(pipeline: Pipeline, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table by key, without what the lake adds."""
    added_columns = {ORDERING_KEY}
    rows = [{name: row[name] for name in row.keys() - added_columns} for row in rows_of(pipeline, table)]
    return sorted(rows, key=lambda row: int(row["id"]))


def failed_checks(pipeline: Pipeline, spark: "SparkSession", *names: str) -> dict[str, str]:
    """Return what the checks that fail say, apart from changes of the schema and records in quarantine.

    Each looks at the whole lake; with names, only those of that name are made.
    """
    checks = [check for check in checks_of(pipeline.capabilities) if not names or check.name in names]
    assert {*names} <= {check.name for check in checks}
    results = {check.name: check.run(pipeline, spark, EVERYTHING) for check in checks}
    return {
        name: result.summary
        for name, result in results.items()
        if not result.passed and name not in {"schema_changes", QUARANTINE_EMPTY}
    }
