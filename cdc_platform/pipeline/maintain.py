"""Maintenance between ticks: small commits would slow everything down within tens of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits import BRANCH, TICK, ancestors_of, count_rows, fact, head, read_mark
from cdc_platform.lake.cuts import Cut, cuts_since_moment
from cdc_platform.lake.lake import BURIED, CUT, LINEAGE, LOG, RAW, READ
from cdc_platform.lake.maintenance import (
    compact_all_files,
    compact_small_files,
    expire_snapshots,
    find_expendable,
)
from cdc_platform.model.names import lake_table_name
from cdc_platform.model.retention import kept_moments
from cdc_platform.pipeline.branch import load_table
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.settings import KEPT_SNAPSHOTS_MIN

ROLLING_TABLES = (RAW, LOG, CUT)
"""The platform's own tables that grow by a few files each tick."""

EVENT_ROLLING_TABLES = (READ, BURIED)
"""The same of a source that hands out events."""

READING_S: Final = 600
"""How long every snapshot of the platform's own tables stays: what is being read must not be deleted."""
GLANCED_TABLES: Final = (CUT, LINEAGE)
"""Own tables that are small, and read at a glance."""
GLANCE_S: Final = 60
"""The same of these."""
GLANCED_SNAPSHOTS: Final = 30
"""So many old snapshots of such a table are expired at once: pyiceberg, which writes these tables, handles
all snapshots of a table some twenty times in each commit."""

MOST_EXPIRED: Final = 2000
"""So many snapshots of one table expire at once, and the others the next time."""

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
    now_micros = time.time_ns() // 1000
    expired = sum(
        _expire_own(pipeline, spark, name, now_micros, thorough=thorough)
        for name in (*_rolling_tables(pipeline), LINEAGE)
    )
    before_micros = now_micros - int(min(settings.keep_every_cut_s, settings.keep_snapshots_s) * 1_000_000)
    cuts = _kept_cuts(pipeline, now_micros)
    for table in tables:
        found = load_table(pipeline, table)
        named = [cut.tables[table] for cut in cuts if table in cut.tables]
        old = find_expendable(found, before_micros, settings.keep_snapshots, named)
        expired += _expire_old(spark, found, old, 1 if thorough else settings.expire_every_ticks)
    return expired


def _expire_own(
    pipeline: Pipeline, spark: SparkSession, name: str, now_micros: int, *, thorough: bool
) -> int:
    settings = pipeline.settings.maintenance
    whole_s, newest, enough = READING_S, settings.keep_snapshots, settings.expire_every_ticks
    if name in GLANCED_TABLES:
        whole_s, newest, enough = GLANCE_S, KEPT_SNAPSHOTS_MIN, min(GLANCED_SNAPSHOTS, enough)
    found = pipeline.lake.system_table(name)
    old = find_expendable(found, now_micros - whole_s * 1_000_000, newest)
    return _expire_old(spark, found, old, 1 if thorough else enough)


def _expire_old(spark: SparkSession, table: Table, old: Sequence[int], enough: int) -> int:
    return expire_snapshots(spark, ".".join(table.name()), old[:MOST_EXPIRED]) if len(old) >= enough else 0


def _kept_cuts(pipeline: Pipeline, now_micros: int) -> list[Cut]:
    settings = pipeline.settings.maintenance
    last_s = settings.keep_snapshots_s
    cuts = cuts_since_moment(pipeline.lake, now_micros - int(last_s * 1_000_000))
    # A cut gets old when the next one takes its place: until then, readers are given it.
    ends = [later.published_micros for later in cuts[1:]]
    kept = kept_moments(ends, now_micros, settings.keep_every_cut_s, last_s)
    return [*(cut for cut, end in zip(cuts, ends, strict=False) if end in kept), *cuts[-1:]]


def _forget_deleted(pipeline: Pipeline, spark: SparkSession, after_s: float) -> None:
    """Take away tombstones of which no older event can come any more."""
    before_micros = time.time_ns() // 1000 - int(after_s * 1_000_000)
    spark.sql(
        f"DELETE FROM {pipeline.lake.spark_system_table(BURIED)} "
        f"WHERE commit_timestamp < timestamp_micros({before_micros})"
    )


def _spark_name(pipeline: Pipeline, table: str) -> str:
    return f"{pipeline.name}.{lake_table_name(table)}"
