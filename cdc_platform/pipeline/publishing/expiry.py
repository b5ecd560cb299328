"""Expiry of old snapshots that no kept cut names, and of deletion markers that no older change needs."""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import ancestors_of, head, number_of, read_mark
from cdc_platform.lake.commits.maintenance import delete_rows, expire_snapshots
from cdc_platform.lake.commits.snapshots import SHORT_LIFE_S, find_expendable
from cdc_platform.lake.state.cuts import Cut, cycle_published_by, find_cuts, publications_since
from cdc_platform.lake.state.quarantine import find_taken_snapshot
from cdc_platform.model.base.stored_names import CUT, CYCLE, DELETION_MARKERS, LINEAGE, LOG, QUARANTINE
from cdc_platform.model.base.timestamps import MICROS_PER_S
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import KEPT_SNAPSHOTS_MIN
from cdc_platform.pipeline.versions.branch import load_table

THINNING: Final = ((3600, 60), (None, 900))
"""Pairs of an age and a period in seconds: up to that age one moment per period stays; None is any age.

The second period is a multiple of the first, so that the first moment of a quarter of an hour has always
been the first of its minute.
"""


def max_moments_kept(last_s: float) -> int:
    """Return the maximum number of moments that stay where they are thinned out."""
    count, begin_s = 0, 0.0
    for limit_s, period_s in THINNING:
        end_s = last_s if limit_s is None else min(limit_s, last_s)
        # Each period that the time range touches keeps its first moment.
        count += ceil((end_s - begin_s) / period_s) + 1 if end_s > begin_s else 0
        begin_s = end_s
    return count


def kept_moments(
    moments_micros: Iterable[int], now_micros: int, every_s: float, last_s: float
) -> frozenset[int]:
    """Return the moments that stay.

    No earlier call gave up any of them, except the first of the quarter of an hour in which `last_s` ends.

    Args:
        moments_micros: microseconds since 1970.
        now_micros: the present.
        every_s: age in seconds up to which all moments stay, unless it exceeds `last_s`.
        last_s: age in seconds beyond which no moment stays.
    """
    moments_kept, slots = set[int](), set[tuple[int, int]]()
    for moment_micros in sorted(moments_micros):
        age_s = (now_micros - moment_micros) / MICROS_PER_S
        if age_s > last_s:
            continue
        if age_s > every_s:
            period_s = next(period for limit, period in THINNING if limit is None or age_s <= limit)
            place = (period_s, moment_micros // (period_s * MICROS_PER_S))
            if place in slots:
                continue
            slots.add(place)
        moments_kept.add(moment_micros)
    return frozenset(moments_kept)


READING_S: Final = 600
"""Time for which every snapshot of the platform's own tables stays: a reader may still need it."""
REWRITABLE_TABLES: Final = (QUARANTINE, DELETION_MARKERS)
"""Tables in which an interrupted cycle replaces its rows: they must be in no file with those of others."""
SHORT_LIVED_TABLES: Final = (CUT, LINEAGE)
"""Small system tables, always read whole, whose snapshots stay for `SHORT_LIFE_S` only."""
SHORT_LIVED_SNAPSHOTS: Final = 60
"""Number of old snapshots of such a table that are expired together: pyiceberg, which writes these tables,
processes all snapshots of a table some twenty times in each commit."""

MAX_EXPIRIES: Final = 2000
"""Maximum number of snapshots of one table that expire at once; the others expire the next time."""


def expire_table(
    pipeline: Pipeline,
    spark: SparkSession,
    table: str,
    kept_cuts: Callable[[], Sequence[Cut]],
    now_micros: int,
    *,
    thorough: bool,
) -> int:
    """Expire snapshots of a merged table that no kept cut names; return the number of deleted files.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        table: name of the source table.
        kept_cuts: returns the cuts that stay. A day of cuts takes a second to read, so they are only read
            where enough snapshots may expire.
        now_micros: the present.
        thorough: expire few snapshots, too, which else wait until there are more.
    """
    stored_table = load_table(pipeline, table)
    if not thorough and age_of_table(pipeline, stored_table, now_micros) < 1:
        return 0
    cut_snapshots = [cut.tables[table] for cut in kept_cuts() if table in cut.tables]
    return _expire(spark, stored_table, _old_snapshots(pipeline, stored_table, now_micros, cut_snapshots))


def _old_snapshots(
    pipeline: Pipeline, table: Table, now_micros: int, cut_snapshots: Collection[int] = ()
) -> tuple[int, ...]:
    settings = pipeline.settings.maintenance
    before_micros = now_micros - int(min(settings.keep_every_cut_s, settings.keep_snapshots_s) * MICROS_PER_S)
    return find_expendable(table, before_micros, settings.keep_snapshots, cut_snapshots)


def age_of_table(pipeline: Pipeline, table: Table, now_micros: int) -> float:
    """Return the number of a merged table's expirable snapshots, relative to the number worth an expiry."""
    snapshot_ids = _old_snapshots(pipeline, table, now_micros)
    if not snapshot_ids:
        return 0
    settings, snapshots = pipeline.settings.maintenance, table.metadata.snapshots
    oldest_s = now_micros / MICROS_PER_S - min(snapshot.timestamp_ms for snapshot in snapshots) / 1000
    certain = len(snapshot_ids) - max_moments_kept(min(oldest_s, settings.keep_snapshots_s))
    return certain / _enough(pipeline, len(snapshots) - certain)


def expire_system_table(
    pipeline: Pipeline, spark: SparkSession, name: str, now_micros: int, *, thorough: bool
) -> int:
    """Expire old snapshots of a system table; see `expire_table`."""
    system_table = pipeline.lake.system_table(name)
    if not thorough and age_of_system_table(pipeline, name, system_table, now_micros) < 1:
        return 0
    return _expire(spark, system_table, _old_system_snapshots(pipeline, name, system_table, now_micros))


def _old_system_snapshots(pipeline: Pipeline, name: str, table: Table, now_micros: int) -> tuple[int, ...]:
    whole_s, newest = READING_S, pipeline.settings.maintenance.keep_snapshots
    if name in SHORT_LIVED_TABLES:
        whole_s, newest = SHORT_LIFE_S, KEPT_SNAPSHOTS_MIN
    unlogged_ids = _unlogged_snapshots(pipeline, table) if name in REWRITABLE_TABLES else ()
    return find_expendable(table, now_micros - whole_s * MICROS_PER_S, newest, unlogged_ids)


def _unlogged_snapshots(pipeline: Pipeline, table: Table) -> Collection[int]:
    """Return the snapshots that a run which orders the next cycle may have loaded, or may have to restore.

    They begin with the newest one of a cycle of the log. For quarantine, they begin with the one that the log
    names: an unfinished run names it or a newer one when it commits, however long it pauses before.
    """
    log = pipeline.lake.system_table(LOG)
    taken_id, log_cycle = find_taken_snapshot(log), read_mark(log).cycle
    unlogged_ids = list[int]()
    for snapshot in ancestors_of(table, head(table)):
        unlogged_ids.append(snapshot.snapshot_id)
        cycle = number_of(snapshot, CYCLE)
        is_logged = cycle is not None and cycle <= log_cycle
        if is_logged if table.name()[-1] == DELETION_MARKERS else snapshot.snapshot_id == taken_id:
            break
    return unlogged_ids


def age_of_system_table(pipeline: Pipeline, name: str, table: Table, now_micros: int) -> float:
    """Return the number of a system table's expirable snapshots, relative to the number worth an expiry."""
    snapshot_count = len(_old_system_snapshots(pipeline, name, table, now_micros))
    if name in SHORT_LIVED_TABLES:
        return snapshot_count / min(SHORT_LIVED_SNAPSHOTS, pipeline.settings.maintenance.expire_every_cycles)
    return snapshot_count / _enough(pipeline, len(table.metadata.snapshots) - snapshot_count)


def _enough(pipeline: Pipeline, kept_snapshots: int) -> int:
    """Return the number of old snapshots worth an expiry, which reads the manifests of all kept snapshots."""
    return max(pipeline.settings.maintenance.expire_every_cycles, kept_snapshots // 2)


def _expire(spark: SparkSession, table: Table, snapshot_ids: Sequence[int]) -> int:
    return expire_snapshots(spark, ".".join(table.name()), snapshot_ids[:MAX_EXPIRIES])


def find_kept_cuts(pipeline: Pipeline, now_micros: int) -> tuple[Cut, ...]:
    """Return the cuts whose snapshots stay, oldest first."""
    settings = pipeline.settings.maintenance
    last_s = settings.keep_snapshots_s
    recent_cuts = publications_since(pipeline.lake, now_micros - int(last_s * MICROS_PER_S))
    # The age of a cut counts from the next cut: before that, readers get it.
    ends = [micros for _, micros in recent_cuts[1:]]
    moments = kept_moments(ends, now_micros, settings.keep_every_cut_s, last_s)
    numbers = {number for (number, _), end in zip(recent_cuts, ends, strict=False) if end in moments}
    return find_cuts(pipeline.lake, {*numbers, *(number for number, _ in recent_cuts[-1:])})


def forget_deletion_markers(pipeline: Pipeline, spark: SparkSession, now_micros: int) -> None:
    """Delete the deletion markers of rows for which no older event can arrive any more.

    The time of reading a deletion counts, not the time of the deletion: in a backlog older than the
    retention, unread files may still contain older events.
    """
    if pipeline.capabilities.deletion_markers_s is None:
        return
    before_micros = now_micros - int(pipeline.capabilities.deletion_markers_s * MICROS_PER_S)
    cycle = cycle_published_by(pipeline.lake, before_micros)
    if cycle is not None:
        table = pipeline.lake.system_table(DELETION_MARKERS)
        delete_rows(spark, table, f"cycle <= {cycle}")
