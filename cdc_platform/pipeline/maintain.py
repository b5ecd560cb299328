"""Maintenance between ticks: small commits would slow everything down within tens of them."""

import time
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits import BRANCH, TICK, ancestors_of, count_rows, fact, head, read_mark
from cdc_platform.lake.cuts import list_cuts
from cdc_platform.lake.lake import BURIED, CUT, LINEAGE, LOG, RAW, READ
from cdc_platform.lake.maintenance import compact_all_files, compact_small_files, expire_snapshots
from cdc_platform.model.names import lake_table_name
from cdc_platform.pipeline.branch import load_table
from cdc_platform.pipeline.pipeline import Pipeline

ROLLING_TABLES = (RAW, LOG, CUT)
"""The platform's own tables that grow by a few files each tick."""

EVENT_ROLLING_TABLES = (READ, BURIED)
"""The same of a source that hands out events."""

ROLLING_PATIENCE = 4
"""How many times as many ticks these wait for a compaction: they are read less than merged tables."""


@dataclass(frozen=True)
class MaintenanceOutcome:
    """How many files were rewritten by each kind of compaction, and deleted by expiry."""

    minor_files: int
    major_files: int
    expired_files: int


def is_due(pipeline: Pipeline) -> bool:
    """Whether some table has taken so many ticks since its last compaction that another one pays."""
    return any(_is_fragmented(pipeline, name) for name in pipeline.lake_tables)


def maintain_lake(pipeline: Pipeline, spark: SparkSession, *, thorough: bool = False) -> MaintenanceOutcome:
    """Compact what small commits have left, and expire old snapshots where that is due.

    Args:
        pipeline: the pipeline; no tick of it may run meanwhile.
        spark: session that does the work.
        thorough: compact large files and expire now, due or not.

    Raises:
        LakeError: a compaction has changed the number of rows; it should be reported.
    """
    tables = [name for name in pipeline.lake_tables if _is_published(pipeline, name)]
    minor = sum(
        _compact_table(pipeline, spark, table)
        for table in tables
        if thorough or _is_fragmented(pipeline, table)
    )
    minor += sum(
        _compact_rolling(pipeline, spark, name, thorough=thorough) for name in _rolling_tables(pipeline)
    )
    major = sum(_compact_deleted(pipeline, spark, table, thorough=thorough) for table in tables)
    return MaintenanceOutcome(minor, major, _expire(pipeline, spark, tables, thorough=thorough))


def _rolling_tables(pipeline: Pipeline) -> tuple[str, ...]:
    return (*ROLLING_TABLES, *(EVENT_ROLLING_TABLES if pipeline.traits.hands_out_events else ()))


def _is_fragmented(pipeline: Pipeline, table: str) -> bool:
    found = pipeline.lake.table(table)
    return found is not None and _ticks_since(found) >= pipeline.settings.maintenance.minor_every_ticks


def _ticks_since(table: Table) -> int:
    """Return how many ticks a table has taken since it was compacted."""
    ticks = set()
    for snapshot in ancestors_of(table, head(table)):
        if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
            break
        ticks.add(fact(snapshot, TICK))
    return len(ticks - {None})


def _compact_table(pipeline: Pipeline, spark: SparkSession, table: str) -> int:
    small_file_bytes = pipeline.settings.maintenance.small_file_bytes
    rewritten = compact_small_files(spark, _spark_name(pipeline, table), small_file_bytes)
    _compare_rows(pipeline, table)
    return rewritten


def _compact_rolling(pipeline: Pipeline, spark: SparkSession, name: str, *, thorough: bool) -> int:
    settings = pipeline.settings.maintenance
    due_after = settings.minor_every_ticks * ROLLING_PATIENCE
    if not thorough and _ticks_since(pipeline.lake.system_table(name)) < due_after:
        return 0
    return compact_small_files(spark, f"{pipeline.lake.system_namespace}.{name}", settings.small_file_bytes)


def _compact_deleted(pipeline: Pipeline, spark: SparkSession, table: str, *, thorough: bool) -> int:
    snapshot = head(load_table(pipeline, table))
    total = int(fact(snapshot, "total-records") or 0) if snapshot is not None else 0
    deleted = int(fact(snapshot, "total-position-deletes") or 0) if snapshot is not None else 0
    share = pipeline.settings.maintenance.major_deleted_fraction
    if not deleted or (not thorough and deleted < total * share):
        return 0
    rewritten = compact_all_files(spark, _spark_name(pipeline, table))
    _compare_rows(pipeline, table)
    return rewritten


def _is_published(pipeline: Pipeline, table: str) -> bool:
    """Whether the branch holds nothing that `main` lacks, so that compaction cannot come between them."""
    found = pipeline.lake.table(table)
    if found is None or head(found) is None:
        return False
    branch = head(found, BRANCH)
    return branch is None or read_mark(found, BRANCH).tick <= read_mark(found).tick


def _compare_rows(pipeline: Pipeline, table: str) -> None:
    """Compare the newest compaction with what it compacted."""
    found = load_table(pipeline, table)
    for snapshot in ancestors_of(found, head(found)):
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            continue
        parent = found.metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
        before, after = count_rows(parent), count_rows(snapshot)
        if parent is not None and None not in {before, after} and before != after:
            raise LakeError(
                f"Compaction of `{table}` changed its rows from {before} to {after}. Rebuild the table "
                f"from the log, and report this with the table's snapshot {snapshot.snapshot_id}."
            )
        return


def _expire(pipeline: Pipeline, spark: SparkSession, tables: list[str], *, thorough: bool) -> int:
    settings = pipeline.settings.maintenance
    if pipeline.traits.tombstones_s is not None and thorough:
        _forget_deleted(pipeline, spark, pipeline.traits.tombstones_s)
    keep_micros = time.time_ns() // 1000 - int(settings.keep_snapshots_s * 1_000_000)
    cuts = [cut for cut in list_cuts(pipeline.lake) if cut.published_micros >= keep_micros]
    expired = 0
    for name in (*_rolling_tables(pipeline), LINEAGE):
        identifier = f"{pipeline.lake.system_namespace}.{name}"
        expired += _expire_table(pipeline, spark, identifier, keep_micros, thorough=thorough)
    for table in tables:
        found = load_table(pipeline, table)
        named = [found.metadata.snapshot_by_id(cut.tables.get(table, -1)) for cut in cuts]
        # A young cut may name an old snapshot, of a table that is seldom written.
        oldest = [snapshot.timestamp_ms * 1000 for snapshot in named if snapshot is not None]
        before = min([keep_micros, *oldest])
        expired += _expire_table(pipeline, spark, _spark_name(pipeline, table), before, thorough=thorough)
    return expired


def _forget_deleted(pipeline: Pipeline, spark: SparkSession, after_s: float) -> None:
    """Take away tombstones of which no older event can come any more."""
    before_micros = time.time_ns() // 1000 - int(after_s * 1_000_000)
    spark.sql(
        f"DELETE FROM {pipeline.lake.spark_system_table(BURIED)} "
        f"WHERE commit_timestamp < timestamp_micros({before_micros})"
    )


def _expire_table(
    pipeline: Pipeline, spark: SparkSession, identifier: str, before_micros: int, *, thorough: bool
) -> int:
    settings = pipeline.settings.maintenance
    metadata = pipeline.lake.catalog.load_table(identifier).metadata
    # Branches and tags, which promised cuts are, outlast expiry.
    kept = {pointer.snapshot_id for pointer in metadata.refs.values()}
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]
    old = sum(snapshot.timestamp_ms * 1000 < before_micros for snapshot in snapshots)
    expendable = min(old, len(snapshots) - settings.keep_snapshots)
    if expendable < (1 if thorough else settings.expire_every_ticks):
        return 0
    return expire_snapshots(spark, identifier, before_micros, settings.keep_snapshots)


def _spark_name(pipeline: Pipeline, table: str) -> str:
    return f"{pipeline.name}.{lake_table_name(table)}"
