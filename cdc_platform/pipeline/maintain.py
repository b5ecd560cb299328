"""Maintenance between ticks: small commits would slow everything down within tens of them."""

import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits import BRANCH, count_rows, fact, head, read_mark
from cdc_platform.lake.lake import CUT, LINEAGE, LOG, RAW
from cdc_platform.lake.maintenance import compact_all_files, compact_small_files, expire_snapshots
from cdc_platform.model.names import lake_table_name
from cdc_platform.pipeline.branch import load_table
from cdc_platform.pipeline.pipeline import Pipeline

ROLLING_TABLES = (RAW, LOG, CUT)
"""The platform's own tables that grow by a few files each tick."""


@dataclass(frozen=True)
class MaintenanceOutcome:
    """How many files were rewritten by each kind of compaction, and deleted by expiry."""

    minor_files: int
    major_files: int
    expired_files: int


def is_due(pipeline: Pipeline, tick: int) -> bool:
    """Whether maintenance has something to do after a tick."""
    return tick > 0 and tick % pipeline.settings.maintenance.minor_every_ticks == 0


def maintain_lake(pipeline: Pipeline, spark: SparkSession, *, thorough: bool = False) -> MaintenanceOutcome:
    """Compact what small commits have left, and expire old snapshots where that is due.

    Args:
        pipeline: the pipeline; no tick of it may run meanwhile.
        spark: session that does the work.
        thorough: compact large files and expire now, due or not.

    Raises:
        LakeError: a compaction has changed the number of rows; it should be reported.
    """
    tick = read_mark(pipeline.lake.system_table(RAW)).tick
    settings = pipeline.settings.maintenance
    expires = thorough or tick % settings.expire_every_ticks == 0
    minor = sum(_compact_table(pipeline, spark, table.name) for table in pipeline.tables)
    if expires or tick % (settings.minor_every_ticks * 4) == 0:
        for name in ROLLING_TABLES:
            minor += compact_small_files(
                spark, f"{pipeline.lake.system_namespace}.{name}", settings.small_file_bytes
            )
    major = sum(_compact_deleted(pipeline, spark, table.name, thorough=thorough) for table in pipeline.tables)
    expired = _expire(pipeline, spark) if expires else 0
    return MaintenanceOutcome(minor, major, expired)


def _compact_table(pipeline: Pipeline, spark: SparkSession, table: str) -> int:
    if not _is_published(pipeline, table):
        return 0
    before = count_rows(head(load_table(pipeline, table)))
    rewritten = compact_small_files(
        spark, _spark_name(pipeline, table), pipeline.settings.maintenance.small_file_bytes
    )
    _compare_rows(pipeline, table, before)
    return rewritten


def _compact_deleted(pipeline: Pipeline, spark: SparkSession, table: str, *, thorough: bool) -> int:
    snapshot = head(load_table(pipeline, table)) if _is_published(pipeline, table) else None
    if snapshot is None:
        return 0
    total = int(fact(snapshot, "total-records") or 0)
    deleted = int(fact(snapshot, "total-position-deletes") or 0)
    share = pipeline.settings.maintenance.major_deleted_fraction
    if not deleted or (not thorough and deleted < total * share):
        return 0
    before = count_rows(snapshot)
    rewritten = compact_all_files(spark, _spark_name(pipeline, table))
    _compare_rows(pipeline, table, before)
    return rewritten


def _is_published(pipeline: Pipeline, table: str) -> bool:
    """Whether the branch holds nothing that `main` lacks, so that compaction cannot come between them."""
    found = pipeline.lake.table(table)
    if found is None or head(found) is None:
        return False
    branch = head(found, BRANCH)
    return branch is None or read_mark(found, BRANCH).tick <= read_mark(found).tick


def _compare_rows(pipeline: Pipeline, table: str, before: int | None) -> None:
    after = count_rows(head(load_table(pipeline, table)))
    if before is not None and after is not None and before != after:
        raise LakeError(f"Compaction of `{table}` changed its rows from {before} to {after}.")


def _expire(pipeline: Pipeline, spark: SparkSession) -> int:
    settings = pipeline.settings.maintenance
    older_than_micros = time.time_ns() // 1000 - int(settings.keep_snapshots_s * 1_000_000)
    system = [f"{pipeline.lake.system_namespace}.{name}" for name in (*ROLLING_TABLES, LINEAGE)]
    tables = [
        _spark_name(pipeline, table.name) for table in pipeline.tables if pipeline.lake.table(table.name)
    ]
    return sum(
        expire_snapshots(spark, table, older_than_micros, settings.keep_snapshots)
        for table in system + tables
    )


def _spark_name(pipeline: Pipeline, table: str) -> str:
    return f"{pipeline.name}.{lake_table_name(table)}"
