"""Plans of initial copies: the tables, the moment of each copy, and its chunks."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from cdc_platform.errors import CommitConflict, SourceError
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.copies import CopyPlan, columns_to_text, load_plans, save_plans
from cdc_platform.lake.state.cuts import newest_cut, tables_published
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.versions.handover import current_plans, is_made_by_log, is_published

PLANNERS: Final = 8
"""Number of tables planned at a time: the source answers several small queries about each."""


@dataclass(frozen=True)
class PlannedCopies:
    """Plans that the lake stores, the tables without one, and the reason."""

    plans: tuple[CopyPlan, ...]
    failed: tuple[str, ...] = ()
    failure: SourceError | None = None


def find_new_tables(pipeline: Pipeline) -> list[str]:
    """Return the tables of the source that are not in a cut yet."""
    cut, lake = newest_cut(pipeline.lake), pipeline.lake
    departures = {name for name, columns in pipeline.schema_history.tables.items() if not columns.is_watched}
    candidates = [table.name for table in pipeline.tables if cut is None or table.name not in cut.tables]
    return [
        name
        for name in candidates
        if name not in departures and not is_published(lake.table(name), name, cut)
    ]


def plan_missing_copies(pipeline: Pipeline, tables: Sequence[str]) -> PlannedCopies:
    """Return the plans of tables, and make the missing ones; tables that only the log makes have none."""
    stored_plans = _plans_to_follow(pipeline, tables)
    plans = tuple(stored_plans[table] for table in tables if table in stored_plans)
    names = [table for table in tables if table not in stored_plans and not is_made_by_log(pipeline, table)]
    if not names or not pipeline.settings.copies_first:
        return PlannedCopies(plans)
    copies = make_plans(pipeline, names, load_plans(pipeline.lake))
    return replace(copies, plans=plans + copies.plans)


def _plans_to_follow(pipeline: Pipeline, tables: Sequence[str]) -> Mapping[str, CopyPlan]:
    """Return the stored plans of unpublished tables, except those of tables that a cut has named since.

    A user has dropped such a table, and the moment of its plan may be why.
    """
    plans = {name: plan for name, plan in current_plans(pipeline).items() if name in tables}
    stored_names = pipeline.lake.table_names() if plans else ()
    # They wait for their turn, or are dropped.
    absent = {name: plan for name, plan in plans.items() if lake_table_name(name) not in stored_names}
    published = {
        micros: tables_published(pipeline.lake, since_micros=micros)
        for micros in {plan.position_micros for plan in absent.values()}
    }
    return {
        name: plan
        for name, plan in plans.items()
        if name not in absent or name not in published[plan.position_micros]
    }


def make_plans(pipeline: Pipeline, names: Sequence[str], before: Mapping[str, CopyPlan]) -> PlannedCopies:
    """Plan the copies of some tables at one moment, the source's present, and store the plans.

    A copy has the columns of that moment, even if the log has shown other ones so far; when the log passes
    the moment, the plan provides the columns (`schema_evolution.py`). A table that is gone at the moment has
    no plan.

    Raises:
        CommitConflict: another run has planned the same copies, or advanced the log beyond the moment.
    """
    # The stream must begin before the copy, or changes between the two would be in neither.
    trace_lineage(pipeline)
    position_micros = pipeline.source.clock_micros() - 1

    planner = pipeline.stream_source.plan_copies(position_micros)
    tables = [table for table in pipeline.read_schema(position_micros).tables if table.name in names]

    def plan(table: TableSchema) -> CopyPlan | SourceError:
        try:
            chunks = planner.chunks(table, pipeline.settings.copy_chunk_rows)
        except SourceError as error:
            return error
        number = before[table.name].number + 1 if table.name in before else 1
        moments = position_micros, clock_micros()
        return CopyPlan(table.name, number, *moments, columns_to_text(table), chunks)

    with (
        pipeline.progress.step("plan of the initial copy", "tables", len(tables)) as step,
        ThreadPoolExecutor(max_workers=PLANNERS) as pool,
    ):
        results = list(pool.map(step.counting(plan), tables))
    plans = tuple(plan for plan in results if isinstance(plan, CopyPlan))
    if plans:
        _require_unpassed(pipeline, position_micros)
    save_plans(pipeline.lake, plans)
    failures = {table.name: plan for table, plan in zip(tables, results, strict=True) if plan not in plans}
    errors_met = [plan for plan in failures.values() if isinstance(plan, SourceError)]
    return PlannedCopies(plans, tuple(failures), errors_met[0] if errors_met else None)


def _require_unpassed(pipeline: Pipeline, position_micros: int) -> None:
    log_micros = read_mark(pipeline.lake.system_table(LOG)).position_micros
    if log_micros is not None and log_micros > position_micros:
        raise CommitConflict(
            "Another run has advanced the log beyond the moment of the initial copies that this run was "
            "planning; the next cycle plans them again."
        )
