"""The last step of a cycle: a cut names one snapshot of every table, then `main` moves there."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.commits.branches import advance_main, contains
from cdc_platform.lake.commits.commits import head, read_mark
from cdc_platform.lake.state.cuts import Cut, append_cut, cut_number, newest_cut
from cdc_platform.lake.state.lost_tables import require_published
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.versions.branch import finished_head, load_table
from cdc_platform.pipeline.versions.handover import find_handover
from cdc_platform.pipeline.versions.log_span import applied_cycle, pending_span
from cdc_platform.pipeline.versions.unchanged_tables import find_unchanged_in_lake

FindTable = Callable[[str], Table | None]
_PARALLEL_MOVES: Final = 8
"""Number of tables whose `main` moves at a time: each waits for a request to the catalog and the store."""


@dataclass(frozen=True)
class _Version:
    """The snapshot of one table that a cut names."""

    table: str
    snapshot_id: int
    is_new: bool


@pipeline_step("publish")
def publish_cut(pipeline: Pipeline) -> Cut | None:
    """Publish the versions on the branches as one cut, and return it; the newest cut if nothing is new.

    The cut is one small commit; after it, `main` of every table moves. The next call repairs a crash in
    between, because the cut names the snapshots.

    Raises:
        CommitConflict: another run published first, or a table is behind the log; nothing was changed.
        LakeDamaged: another program has dropped or replaced a table of the newest cut.
    """
    # In this order: what another process publishes meanwhile has the number of the next cut, and what it adds
    # to the log is in no table that counts as unchanged.
    newest, mark = newest_cut(pipeline.lake), read_mark(pipeline.lake.system_table(LOG))
    unchanged_tables = find_unchanged_in_lake(pipeline)
    # Of a version that is not the present one, the catalog refuses the move of `main`.
    find_table = cache(pipeline.lake.table)
    if newest is not None:
        # Another process may have moved `main` back to a former cut, and the next cut must not name that.
        names = [name for name in newest.tables if name not in unchanged_tables]
        _move_mains(pipeline, newest, _own_tables(pipeline, names, find_table), find_table)
    if mark.position_micros is None:
        return newest
    latest = [
        _Version(name, newest.tables[name], is_new=False)
        if newest is not None and name in unchanged_tables
        else _find_version(pipeline, name, mark.cycle, newest, find_table)
        for name in pipeline.lake_tables
    ]
    versions = [version for version in latest if version is not None]
    if not versions:
        return newest
    if newest is not None and newest.cycle == mark.cycle and not any(version.is_new for version in versions):
        return newest
    cut = Cut(
        cut=cut_number(newest) + 1,
        position_micros=mark.position_micros,
        cycle=mark.cycle,
        tables={version.table: version.snapshot_id for version in versions},
        published_micros=clock_micros(),
    )
    append_cut(pipeline.lake, cut)
    _move_mains(pipeline, cut, [version.table for version in versions if version.is_new], find_table)
    return cut


def _own_tables(pipeline: Pipeline, names: Iterable[str], find_table: FindTable) -> list[str]:
    """Return those of some tables that the user has not left out and dropped since."""
    return [name for name in names if name in pipeline.lake_tables or find_table(name) is not None]


def _find_version(
    pipeline: Pipeline, table: str, cycle: int, newest: Cut | None, find_table: FindTable
) -> _Version | None:
    """Return the version of a table or history at the log; None while it waits for its initial copy."""
    source_table = pipeline.lake_tables[table]
    # A history waits for the copy of its table.
    handover = find_handover(pipeline, find_table(source_table), source_table, newest)
    if handover is not None and not handover.is_ready:
        return None
    stored_table = find_table(table) or load_table(pipeline, table)
    branch, main = finished_head(stored_table, cycle, newest), head(stored_table)
    if branch is not None and not contains(stored_table, branch.snapshot_id):
        return _Version(table, branch.snapshot_id, is_new=True)
    if handover is not None:
        # Not merged yet: the cut does not wait for a new table.
        return None
    require_published(pipeline.lake, stored_table, table, newest)
    if (
        main is None
        or pending_span(pipeline, source_table, applied_cycle(pipeline, stored_table, table, newest)).changes
    ):
        raise CommitConflict(
            f"Table `{table}` is behind the log at cycle {cycle}: another run has extended the log since "
            "this one merged the table. The next cycle merges it."
        )
    named_id = newest.tables.get(table, main.snapshot_id) if newest is not None else main.snapshot_id
    # Another program may have compacted the table and expired the snapshot that the newest cut names.
    is_gone = stored_table.metadata.snapshot_by_id(named_id) is None
    return _Version(table, main.snapshot_id, is_new=is_gone)


def _move_mains(pipeline: Pipeline, cut: Cut, names: Iterable[str], find_table: FindTable) -> None:
    """Move `main` of some tables and histories to the snapshots that a cut names, also if one move fails.

    Readers without the cut see tables of two cuts until the last one has moved.
    """
    with ThreadPoolExecutor(max_workers=_PARALLEL_MOVES) as pool:
        for moved in [pool.submit(_move_main, pipeline, cut, name, find_table) for name in names]:
            moved.result()


def _move_main(pipeline: Pipeline, cut: Cut, name: str, find_table: FindTable) -> None:
    table = find_table(name) or load_table(pipeline, name)
    # If compaction has since built on the cut's snapshot, `main` is already right.
    try:
        advance_main(table, cut.tables[name], partial(_is_newest, pipeline, cut, name))
    except NoSuchTableError:
        # Dropped or replaced since it was loaded.
        require_published(pipeline.lake, pipeline.lake.table(name), name, cut)
        raise


def _is_newest(pipeline: Pipeline, cut: Cut, name: str) -> bool:
    newest = newest_cut(pipeline.lake)
    return newest is None or newest.tables.get(name) == cut.tables[name]
