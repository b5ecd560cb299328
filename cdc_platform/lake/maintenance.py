"""The procedures that keep a table fast; none changes what it holds."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.lake.settings import CATALOG

NEVER: Final = 2_147_483_647


def compact_small_files(spark: SparkSession, table: str, small_file_bytes: int) -> int:
    """Rewrite small files as one, large ones not at all; return how many were rewritten.

    Args:
        spark: session that does the work.
        table: `NAMESPACE.TABLE`.
        small_file_bytes: files below it are small.
    """
    options = {
        "min-input-files": "2",
        "min-file-size-bytes": str(small_file_bytes),
        # Large files are left alone however many of their rows are deleted: that is a major compaction.
        "delete-file-threshold": str(NEVER),
        "delete-ratio-threshold": "1.0",
        "max-file-size-bytes": str(2**40),
    }
    return _rewrite(spark, table, options)


def compact_all_files(spark: SparkSession, table: str) -> int:
    """Rewrite every file that has deleted rows; return how many were rewritten."""
    return _rewrite(spark, table, {"delete-file-threshold": "1"})


def _rewrite(spark: SparkSession, table: str, options: dict[str, str]) -> int:
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    row = spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', options => map({pairs}))"
    ).collect()[0]
    return int(row["rewritten_data_files_count"])


def expire_snapshots(spark: SparkSession, table: str, older_than_micros: int, retain_last: int) -> int:
    """Expire old snapshots and delete the files that only they had; return how many were deleted."""
    older_than = datetime.fromtimestamp(older_than_micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    row = spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', "
        f"older_than => TIMESTAMP '{older_than}', retain_last => {retain_last})"
    ).collect()[0]
    return sum(int(count or 0) for count in row)
