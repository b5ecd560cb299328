"""The check of a source's files: what could not be read is named, and not taken for what is not there."""

from pyspark.sql import SparkSession

from cdc_platform.pipeline.checks.check_result import SHOWN, CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.unread_files import list_unread


def check_files(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for files that could not be read."""
    unread = list_unread(pipeline)
    named = "; ".join(file.describe() for file in unread[:SHOWN])
    more = f"; and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
    return CheckResult(
        not unread,
        f"{named}{more}" if unread else "every file that is there was read",
        {"unread_files": len(unread)},
    )
