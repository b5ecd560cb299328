"""Next versions of tables and histories: all are planned first, then built on their branches together."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import fact, read_mark
from cdc_platform.lake.state.cuts import Cut, cut_number, newest_cut
from cdc_platform.lake.state.lost_tables import require_published
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.attempts import PARALLEL_TABLES, run_attempts
from cdc_platform.pipeline.versions.branch import FELL_BACK, Attempt, finished_head
from cdc_platform.pipeline.versions.change_source import starts_over
from cdc_platform.pipeline.versions.handover import Handover, find_handover
from cdc_platform.pipeline.versions.log_span import LogSpan
from cdc_platform.pipeline.versions.unchanged_tables import find_unchanged, note_unchanged


class _NextVersion(Protocol):
    @property
    def has_few_changes(self) -> bool: ...

    def attempt(self, cut: int, token: str) -> Attempt: ...


BuildT = TypeVar("BuildT", bound=_NextVersion)
Builder = Callable[[Pipeline, SparkSession, Attempt, BuildT], MergeOutcome | None]
FullBuilder = Callable[[Pipeline, SparkSession, Attempt, BuildT], MergeOutcome]
Plan = Callable[[TableSchema, Cut | None, Handover | None], BuildT | MergeOutcome]


@dataclass(frozen=True)
class Base:
    """The snapshot on which the next version of a table or history is built; ``cut`` is the newest cut."""

    name: str
    table: Table
    snapshot: Snapshot
    cut: Cut | None


def catch_up(
    pipeline: Pipeline,
    schemas: Mapping[str, TableSchema],
    plan: "Plan[BuildT]",
    build_all: Callable[[Sequence[BuildT], Cut | None], tuple[MergeOutcome, ...]],
) -> tuple[MergeOutcome, ...]:
    """Bring tables or histories up to date with the log; return their outcomes in the order of `schemas`.

    Args:
        pipeline: the pipeline.
        schemas: source table of each table or history.
        plan: returns the build of a version, or the outcome if there is nothing to build.
        build_all: builds the planned versions; the outcomes are in the same order.

    Raises:
        LakeDamaged: another program has dropped or replaced a published table or history.
    """
    # Before anything is planned: if another run publishes from here on, it voids these attempts.
    cut = newest_cut(pipeline.lake)
    unchanged_tables, cycle = find_unchanged(pipeline), read_mark(pipeline.lake.system_table(LOG)).cycle

    def plan_next(name: str, schema: TableSchema) -> BuildT | MergeOutcome:
        if name in unchanged_tables:
            return MergeOutcome(name, cycle)
        handover = _find_handover(pipeline, name, schema.name, cut)
        # Until the handover, the table has only the columns of its copy, and its history waits.
        is_waiting = handover is not None and not handover.is_ready
        return MergeOutcome(name, cycle) if is_waiting else plan(schema, cut, handover)

    # Each table waits for some requests to the catalog.
    with ThreadPoolExecutor(max_workers=PARALLEL_TABLES) as pool:
        plans = list(pool.map(plan_next, schemas.keys(), schemas.values()))
    built = iter(build_all([each for each in plans if not isinstance(each, MergeOutcome)], cut))
    return tuple(each if isinstance(each, MergeOutcome) else next(built) for each in plans)


def _find_handover(pipeline: Pipeline, name: str, source_table: str, cut: Cut | None) -> Handover | None:
    """Ensure that the lake has the published versions, and return the start of the table."""
    table = pipeline.lake.table(source_table)
    # A rebuild of a table extends its history before it publishes the table.
    if name == source_table or table is None:
        require_published(pipeline.lake, table, source_table, cut)
    if name != source_table:
        require_published(pipeline.lake, pipeline.lake.table(name), name, cut)
    return find_handover(pipeline, table, source_table, cut)


def find_outcome(pipeline: Pipeline, base: Base, span: LogSpan, *, is_due: bool) -> MergeOutcome | None:
    """Return the outcome of a table or history that needs no build, None if it needs one.

    Args:
        pipeline: the pipeline.
        base: the base of its next version.
        span: the part of the log that the base lacks.
        is_due: whether the next version is built even if the log has no changes.
    """
    columns_id = base.table.metadata.current_schema_id
    # Readers of a cut see the columns of its snapshots' schemas.
    has_news = span.changes > 0 or base.snapshot.schema_id != columns_id
    is_due = is_due or has_news or starts_over(pipeline, pipeline.lake_tables[base.name], span)
    if span.until_inclusive == 0 or not is_due:
        note_unchanged(pipeline, base.table, base.name, base.cut)
        return MergeOutcome(base.name, span.until_inclusive)
    snapshot = finished_head(base.table, span.until_inclusive, base.cut)
    # An attempt of an earlier run may be older than a setting that adds columns.
    if snapshot is None or snapshot.schema_id != columns_id:
        return None
    fell_back = fact(snapshot, FELL_BACK) == "true"
    return MergeOutcome(base.name, span.until_inclusive, snapshot.snapshot_id, fell_back=fell_back)


def build_versions(
    pipeline: Pipeline,
    spark: SparkSession,
    step: Step,
    builds: Sequence[BuildT],
    cut: Cut | None,
    builders: tuple[Builder[BuildT], FullBuilder[BuildT]],
) -> tuple[MergeOutcome, ...]:
    """Build planned versions with or without trust, as in `run_attempts`; `cut` was the newest one before."""
    token, number = uuid4().hex, cut_number(cut)
    with_trust, fall_back = builders
    return run_attempts(
        spark,
        [(build.attempt(number, token), build) for build in builds],
        with_trust=step.counting(partial(with_trust, pipeline, spark)),
        fall_back=step.counting(partial(fall_back, pipeline, spark)),
        newest_cut=partial(newest_cut, pipeline.lake),
        has_few_changes=all(build.has_few_changes for build in builds),
    )
