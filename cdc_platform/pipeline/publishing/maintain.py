"""Maintenance between cycles: without it, tens of small commits would slow down everything."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.errors import LakeError
from cdc_platform.lake.catalog.lake import UNMAINTAINED, own_tables
from cdc_platform.lake.commits.commits import (
    BRANCH,
    ancestors_of,
    count_rows,
    head,
    is_compaction,
    number_of,
    read_mark,
)
from cdc_platform.lake.commits.maintenance import (
    compact_all_files,
    compact_small_files,
    delete_orphans,
    merged_file_bytes,
)
from cdc_platform.lake.commits.metadata_files import delete_old_metadata
from cdc_platform.lake.commits.staging import drop_staging
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.stored_names import (
    CUT,
    DELETION_MARKERS,
    LINEAGE,
    LOG,
    QUARANTINE,
    RAW,
    READ_PROGRESS,
)
from cdc_platform.model.base.timestamps import MICROS_PER_S, clock_micros
from cdc_platform.model.base.turns import choose_by_turns
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.publishing.expiry import (
    REWRITABLE_TABLES,
    age_of_system_table,
    age_of_table,
    expire_system_table,
    expire_table,
    find_kept_cuts,
    forget_deletion_markers,
)
from cdc_platform.pipeline.publishing.urgency import cycles_since, deleted_share, fragmentation, fragments
from cdc_platform.pipeline.versions.attempts import PARALLEL_TABLES
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.log_span import tables_changed_after

ROLLING_TABLES: Final = (RAW, LOG, CUT, QUARANTINE, DELETION_MARKERS)
"""The platform's own tables that grow by a few files each cycle, of any source."""

REPLACED_TABLES: Final = (LINEAGE, READ_PROGRESS)
"""Tables whose files their writers replace: maintenance only expires their snapshots."""


@dataclass(frozen=True)
class MaintenanceOutcome:
    """Numbers of files that each kind of compaction rewrote, and that expiry deleted.

    Expired files include old metadata files and the files of killed runs.
    """

    minor_files: int = 0
    major_files: int = 0
    expired_files: int = 0

    def __add__(self, other: "MaintenanceOutcome") -> "MaintenanceOutcome":
        """Return the sum of both outcomes."""
        return MaintenanceOutcome(
            self.minor_files + other.minor_files,
            self.major_files + other.major_files,
            self.expired_files + other.expired_files,
        )


NO_MAINTENANCE: Final = MaintenanceOutcome()

MAX_LOOKED_AT: Final = 10
"""Maximum number of unchanged tables that maintenance examines after a cycle, in turn.

Each is a request to the catalog, which may have to read the table's metadata for it.
"""


@dataclass(frozen=True)
class MaintenanceRun:
    """One maintenance of a lake; a thorough one includes tasks that are not due yet."""

    pipeline: Pipeline
    spark: SparkSession
    is_thorough: bool
    now_micros: int

    @cached_value
    def kept_cuts(self) -> tuple[Cut, ...]:
        """The cuts whose snapshots stay."""
        return find_kept_cuts(self.pipeline, self.now_micros)

    def delete_metadata(self, table: Table) -> int:
        """Delete a table's old metadata files, also those that this run replaced; return their number."""
        keep_micros = int(self.pipeline.settings.maintenance.keep_metadata_s * MICROS_PER_S)
        return delete_old_metadata(table, clock_micros() - keep_micros)

    def delete_orphans(self, table: Table) -> int:
        """Delete a table's files of killed runs if the maintenance is thorough; return their number."""
        keep_micros = int(self.pipeline.settings.maintenance.keep_orphans_s * MICROS_PER_S)
        return delete_orphans(self.spark, table, self.now_micros - keep_micros) if self.is_thorough else 0


@dataclass(frozen=True)
class TableTask:
    """Maintenance of one table; ``urgency`` is the cycles since the last one, over their limit: due at 1."""

    table: str
    urgency: float
    run: Callable[[MaintenanceRun], MaintenanceOutcome]


@pipeline_step("maintain")
def maintain_lake(pipeline: Pipeline, spark: SparkSession, *, thorough: bool = False) -> MaintenanceOutcome:
    """Compact the files of small commits, and expire old snapshots; no cycle may run at the same time.

    After a cycle, only the most urgent of the due tables are maintained: enough to keep up, and so few that
    no cycle waits for all of them. A thorough maintenance covers all tables, due or not, and rewrites all
    files with deleted rows.

    Raises:
        LakeError: a compaction changed the number of rows; report it.
    """
    run = MaintenanceRun(pipeline, spark, thorough, clock_micros())
    tasks = _list_tasks(run)
    due_tasks = tasks if thorough else choose_tasks(pipeline.settings.maintenance, tasks)
    with (
        pipeline.progress.step("maintain", "tables", len(due_tasks)) as step,
        ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool,
    ):
        outcomes = pool.map(lambda task: step.counting(task.run)(run), due_tasks)
        return sum(outcomes, start=MaintenanceOutcome())


def choose_tasks(settings: MaintenanceSettings, tasks: Sequence[TableTask]) -> Sequence[TableTask]:
    """Return the most urgent tasks, enough for each one's turn to come before it is due again."""
    at_once = ceil(len(tasks) / settings.minor_every_cycles)
    due_tasks = [task for task in tasks if task.urgency >= 1]
    return sorted(due_tasks, key=lambda task: -task.urgency)[:at_once]


def _list_tasks(run: MaintenanceRun) -> list[TableTask]:
    pipeline = run.pipeline
    names = choose_tables(run)
    with ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool:
        tables = dict(zip(names, pool.map(pipeline.lake.table, names), strict=True))
    for name, table in tables.items():
        newest = head(table) if table is not None else None
        pipeline.examined_tables.compare(name, newest.snapshot_id if newest is not None else None)
    return [
        *(
            TableTask(name, _urgency_of_table(run, table), partial(_maintain_table, name))
            for name, table in tables.items()
            if table is not None and _is_published(table)
        ),
        *(
            TableTask(name, _urgency_of_system_table(run, name), partial(_maintain_system_table, name))
            for name in (*ROLLING_TABLES, *REPLACED_TABLES)
            if name in own_tables(delivers_events=pipeline.lake.delivers_events)
        ),
        *(TableTask(name, 0, partial(_clean, name)) for name in (UNMAINTAINED if run.is_thorough else ())),
    ]


def choose_tables(run: MaintenanceRun) -> Sequence[str]:
    """Return the tables and histories that may be due: those that the cycle changed, and others in turn.

    In a table that no cycle changes, snapshots become old enough to expire, which can wait for its turn. The
    time decides the turn: cycle numbers stop while a source is silent, and may advance in steps of two or
    more, which would skip some tables forever.
    """
    tables, log = run.pipeline.lake_tables, run.pipeline.lake.system_table(LOG)
    if run.is_thorough:
        return tuple(tables)
    cycle = read_mark(log).cycle
    changed_tables = tables_changed_after(log, cycle - 1) or ()
    in_turn = choose_by_turns(tuple(tables), MAX_LOOKED_AT, run.now_micros)
    of_cycle = (name for name, source_table in tables.items() if source_table in changed_tables)
    return tuple(dict.fromkeys((*of_cycle, *in_turn)))


def _urgency_of_table(run: MaintenanceRun, table: Table) -> float:
    pipeline, due_after = run.pipeline, run.pipeline.settings.maintenance.minor_every_cycles
    # Even a large share of deleted rows is not rewritten in every cycle.
    deletions = min(deleted_share(pipeline, table), cycles_since(table) / due_after)
    fragmentation = fragments(pipeline, table) / due_after
    return max(fragmentation, deletions, age_of_table(pipeline, table, run.now_micros))


def _urgency_of_system_table(run: MaintenanceRun, name: str) -> float:
    table = run.pipeline.lake.system_table(name)
    age = age_of_system_table(run.pipeline, name, table, run.now_micros)
    return age if name in REPLACED_TABLES else max(age, fragmentation(run.pipeline, table))


def _maintain_table(table: str, run: MaintenanceRun) -> MaintenanceOutcome:
    pipeline, spark, settings = run.pipeline, run.spark, run.pipeline.settings.maintenance
    pipeline.examined_tables.forget(table)
    stored_table = load_table(pipeline, table)
    drop_staging(stored_table)
    newest = head(stored_table)
    table_bytes = number_of(newest, "total-files-size") if newest is not None else None
    target_bytes = merged_file_bytes(table_bytes or 0, settings.small_file_bytes)
    minor = compact_small_files(spark, stored_table, settings.small_file_bytes, target_bytes)
    _compare_rows(pipeline, table)
    major = 0
    if _has_many_deleted_rows(pipeline, table, thorough=run.is_thorough):
        major = compact_all_files(spark, load_table(pipeline, table), target_bytes)
        _compare_rows(pipeline, table)
    deleted_files = expire_table(
        pipeline, spark, table, lambda: run.kept_cuts, run.now_micros, thorough=run.is_thorough
    )
    stored_table = load_table(pipeline, table)
    deleted_files += run.delete_metadata(stored_table) + run.delete_orphans(stored_table)
    return MaintenanceOutcome(minor, major, deleted_files)


def _clean(name: str, run: MaintenanceRun) -> MaintenanceOutcome:
    return MaintenanceOutcome(expired_files=run.delete_orphans(run.pipeline.lake.system_table(name)))


def _maintain_system_table(name: str, run: MaintenanceRun) -> MaintenanceOutcome:
    pipeline, spark = run.pipeline, run.spark
    drop_staging(pipeline.lake.system_table(name))
    if name == DELETION_MARKERS:
        forget_deletion_markers(pipeline, spark, run.now_micros)
    minor, system_table = 0, pipeline.lake.system_table(name)
    is_fragmented = fragmentation(pipeline, system_table) >= 1
    if name not in REPLACED_TABLES and (run.is_thorough or is_fragmented):
        small_file_bytes = pipeline.settings.maintenance.small_file_bytes
        where = ""
        if name in REWRITABLE_TABLES:
            where = f"cycle <= {read_mark(pipeline.lake.system_table(LOG)).cycle}"
        minor = compact_small_files(spark, system_table, small_file_bytes, where=where)
    deleted_files = expire_system_table(pipeline, spark, name, run.now_micros, thorough=run.is_thorough)
    system_table = pipeline.lake.system_table(name)
    deleted_files += run.delete_metadata(system_table) + run.delete_orphans(system_table)
    return MaintenanceOutcome(minor_files=minor, expired_files=deleted_files)


def _has_many_deleted_rows(pipeline: Pipeline, table: str, *, thorough: bool) -> bool:
    """Return whether the files with deleted rows are due; a thorough maintenance rewrites all of them."""
    share = deleted_share(pipeline, load_table(pipeline, table))
    return share > 0 if thorough else share >= 1


def _is_published(table: Table) -> bool:
    """Return whether `main` contains the whole branch, so compaction cannot separate them."""
    branch = head(table, BRANCH)
    return head(table) is not None and (
        branch is None or read_mark(table, BRANCH).cycle <= read_mark(table).cycle
    )


def _compare_rows(pipeline: Pipeline, table: str) -> None:
    """Raise if the newest compaction changed the number of rows."""
    stored_table = load_table(pipeline, table)
    for snapshot in ancestors_of(stored_table, head(stored_table)):
        if not is_compaction(snapshot):
            continue
        parent = stored_table.metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
        before, after = count_rows(parent), count_rows(snapshot)
        if parent is not None and None not in {before, after} and before != after:
            raise LakeError(
                f"Compaction of `{table}` changed its rows from {before} to {after}. Rebuild the table "
                f"from the log, and report this with the table's snapshot {snapshot.snapshot_id}."
            )
        return
