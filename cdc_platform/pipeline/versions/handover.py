"""The handover from a table's initial copy to the stream."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import LakeError
from cdc_platform.lake.commits.commits import head, read_mark
from cdc_platform.lake.state.copies import CopyPlan, CopyProgress, load_copy_progress, load_plans
from cdc_platform.lake.state.cuts import Cut, tables_published
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.opened.pipeline import Pipeline


@dataclass(frozen=True)
class Handover:
    """First version of a table that is not in a cut yet: rows as of a position, and the log after it.

    ``is_ready`` is False while rows are missing, or while the log ends before the position: a cut would then
    show the table at a later position than the others.
    """

    is_ready: bool
    position_micros: int | None = None
    base: Snapshot | None = None


def is_published(table: Table | None, name: str, cut: Cut | None) -> bool:
    """Return whether the table has been in a cut, so its copy is complete."""
    if cut is not None and name in cut.tables:
        return True
    return table is not None and read_mark(table).cycle > 0


def find_handover(pipeline: Pipeline, table: Table | None, name: str, cut: Cut | None) -> Handover | None:
    """Return the start of a table; None if only the log makes it, or if it has started already."""
    if is_published(table, name, cut):
        return None
    plan = find_plan(pipeline, name)
    if plan is None:
        waits = pipeline.settings.copies_first and not is_made_by_log(pipeline, name)
        return Handover(is_ready=False) if waits else None
    progress = load_copy_progress(table, plan)
    log_micros = read_mark(pipeline.lake.system_table(LOG)).position_micros
    is_whole = progress.is_complete and not progress.is_mixed
    is_ready = is_whole and log_micros is not None and log_micros >= plan.position_micros
    # An empty table has no snapshot on its branch.
    base = progress.head or (head(table) if table is not None else None)
    return Handover(is_ready, plan.position_micros, base)


def current_plans(pipeline: Pipeline) -> Mapping[str, CopyPlan]:
    """Return the plan of each table's copy, without plans for dropped tables of the same names."""
    plans = load_plans(pipeline.lake)
    return {name: plan for name, plan in plans.items() if _is_current(pipeline, plan)}


def find_plan(pipeline: Pipeline, name: str) -> CopyPlan | None:
    """Return the plan of a table's copy; None without one, or if the table has been recreated since."""
    plan = load_plans(pipeline.lake).get(name)
    return plan if plan is not None and _is_current(pipeline, plan) else None


def _is_current(pipeline: Pipeline, plan: CopyPlan) -> bool:
    columns = pipeline.schema_history.tables.get(plan.table)
    start = columns.last_beginning if columns is not None else None
    return start is None or plan.position_micros >= (start.micros or 0)


def is_made_by_log(pipeline: Pipeline, name: str) -> bool:
    """Return whether there is nothing to copy: the table was created after the stream began, or is gone.

    A table that its user has dropped from the lake is copied: the log may be why it was wrong.
    """
    columns = pipeline.schema_history.tables.get(name)
    if columns is None:
        return False
    if not columns.is_watched:
        return True
    is_in_log = columns.is_created or columns.last_beginning is not None
    return is_in_log and name not in tables_published(pipeline.lake, since_cycle=columns.first_cycle)


def find_copy(pipeline: Pipeline, table: Table | None, name: str) -> CopyProgress | None:
    """Return the complete copy under a published table, None if only the log made it.

    Raises:
        LakeError: there was one, but its branch is gone.
    """
    plan = find_plan(pipeline, name)
    if plan is None:
        return None
    progress = load_copy_progress(table, plan)
    if not progress.is_complete:
        raise LakeError(
            f"The initial copy of table `{name}` is not whole: {len(progress.missing)} of "
            f"{len(plan.chunks)} chunks are missing on its branch `copy`. Run cycles until it is. If the "
            "branch or the table was dropped, copy the table again: leave it out of the setting `tables` "
            "until the next cut, drop it in the lake, and name it again."
        )
    return progress
