"""Procedures that keep a table fast; none changes its content."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.files import has_files_before
from cdc_platform.lake.catalog.lake_settings import CATALOG
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.commits.metadata_files import delete_files, list_unlogged
from cdc_platform.lake.commits.staging import staging_branch
from cdc_platform.model.base.names import quote_spark
from cdc_platform.model.base.timestamps import to_datetime

NEVER: Final = 2_147_483_647
NAMED_SIGN: Final = "Still referenced by refs"
"""Iceberg's message for a snapshot that a tag or a branch names."""
MAX_FILE_BYTES: Final = 512 * 1024**2
"""Maximum size of compacted files, which is Iceberg's default."""
MERGED_FILE_BYTES: Final = 32 * 1024**2
"""Minimum size of a merged table's compacted files. One of the maximum size, which one task writes, can have
100 million rows, and no local merge searches so many."""
MERGED_FILES: Final = 200
"""Number of a merged table's compacted files from which on they grow: a local merge accepts 1,000 files."""


def merged_file_bytes(table_bytes: int, small_file_bytes: int) -> int:
    """Return the size of a merged table's compacted files, none of which is small."""
    grown_bytes = min(table_bytes // MERGED_FILES, MAX_FILE_BYTES)
    return max(MERGED_FILE_BYTES, grown_bytes, 2 * small_file_bytes)


def compact_small_files(
    spark: SparkSession,
    table: Table,
    small_file_bytes: int,
    target_bytes: int = MAX_FILE_BYTES,
    where: str = "",
) -> int:
    """Rewrite small files as few larger ones, and no large ones; return the number of rewritten files.

    Args:
        spark: session that does the work.
        table: the present table.
        small_file_bytes: files below it are small.
        target_bytes: size of the new files.
        where: condition on rows; files that can have no such row stay.
    """
    options = {
        "min-input-files": "2",
        "min-file-size-bytes": str(small_file_bytes),
        # Iceberg refuses a target that is not above the minimum.
        "target-file-size-bytes": str(max(target_bytes, 2 * small_file_bytes)),
        # Large files are left alone even with many deleted rows: rewriting them is a major compaction.
        "delete-file-threshold": str(NEVER),
        "delete-ratio-threshold": "1.0",
        "max-file-size-bytes": str(2**40),
    }
    return _rewrite(spark, table, options, where)


def compact_all_files(spark: SparkSession, table: Table, target_bytes: int = MAX_FILE_BYTES) -> int:
    """Rewrite every file with deleted rows; return the number of rewritten files."""
    options = {"delete-file-threshold": "1", "target-file-size-bytes": str(target_bytes)}
    return _rewrite(spark, table, options)


def _rewrite(spark: SparkSession, table: Table, options: dict[str, str], where: str = "") -> int:
    """Rewrite files of `main`, and return their number.

    Raises:
        CommitConflict: another run has committed since the table was loaded; nothing was changed.
    """
    if head(table) is None:
        return 0
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    condition = f"where => '{where}', " if where else ""
    name = ".".join(table.name())
    with staging_branch(
        table, f"Another run has changed {name}; the next maintenance compacts it."
    ) as branch:
        row = spark.sql(
            f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', branch => '{branch}', "
            f"{condition}options => map({pairs}))"
        ).collect()[0]
    return int(row["rewritten_data_files_count"])


def delete_rows(spark: SparkSession, table: Table, condition: str) -> None:
    """Delete rows of one of the platform's own tables.

    Raises:
        CommitConflict: another run has committed since the table was loaded; nothing was changed.
    """
    if head(table) is None:
        return
    name = ".".join(table.name())
    with staging_branch(table, f"Another run has changed {name}; the next maintenance continues.") as branch:
        spark.sql(f"DELETE FROM {quote_spark(CATALOG, *table.name(), f'branch_{branch}')} WHERE {condition}")


def expire_snapshots(spark: SparkSession, table: str, snapshot_ids: Sequence[int]) -> int:
    """Expire snapshots and delete the files that only they had; return the number of deleted files.

    If one of them has been tagged since they were found, none expires; the next expiry finds the others.

    Raises:
        CommitConflict: another process has expired some of them since they were found.
    """
    if not snapshot_ids:
        return 0
    ids = ", ".join(f"{number}L" for number in snapshot_ids)
    statement = (
        f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', "
        # Otherwise, other snapshots would expire by their age, too.
        f"older_than => TIMESTAMP '1970-01-01 00:00:00', snapshot_ids => ARRAY({ids}))"
    )
    try:
        row = spark.sql(statement).collect()[0]
    except Exception as error:
        if NAMED_SIGN in str(error):
            return 0
        # Iceberg's error for snapshots that are gone is about the size of an array.
        rows = spark.sql(f"SELECT snapshot_id FROM {CATALOG}.{table}.snapshots").collect()
        if set(snapshot_ids) - {row[0] for row in rows}:
            raise CommitConflict(
                f"Another process has expired snapshots of {table}; the next maintenance expires the others."
            ) from error
        raise
    return sum(int(count or 0) for count in row)


def delete_orphans(spark: SparkSession, table: Table, before_micros: int) -> int:
    """Delete the files that no metadata of a table names, and return their number.

    Killed runs leave such files. Files younger than ``before_micros``, at least a day ago, stay, because a
    commit names its files last. Old metadata files stay: `delete_old_metadata` deletes them.
    """
    if not has_files_before(table.io, table.location(), before_micros):
        return 0
    moment = to_datetime(before_micros).isoformat(sep=" ")
    rows = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{'.'.join(table.name())}', "
        f"older_than => TIMESTAMP '{moment}', prefix_listing => true, dry_run => true)"
    ).collect()
    # Iceberg counts old metadata files as orphans, too.
    file_names = {PurePosixPath(path).name for path in list_unlogged(table)}
    orphans = [row[0] for row in rows if PurePosixPath(row[0]).name not in file_names]
    return delete_files(table.io, orphans)
