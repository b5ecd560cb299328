"""Plans of histories: the base of the next version, and its changes."""

from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import ancestors_of, count_rows, fact, head, read_mark
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.stored_names import CYCLE, LOG
from cdc_platform.model.schema.column_versions import Conversion
from cdc_platform.model.schema.table_options import columns_in_history, history_name
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.merging.next_versions import Base, find_outcome
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.schema.schema_evolution import history_through
from cdc_platform.pipeline.schema.table_ddl import ensure_history, ensure_table
from cdc_platform.pipeline.versions.branch import (
    Attempt,
    empty_version,
    load_table,
    published_head,
    require_base,
)
from cdc_platform.pipeline.versions.change_source import (
    SINGLE_TASK_CHANGES,
    ChangeSource,
    find_beginning,
    trusts_inserts,
)
from cdc_platform.pipeline.versions.handover import Handover, find_plan, is_published
from cdc_platform.pipeline.versions.log_span import LogSpan, applied_cycle, pending_span
from cdc_platform.pipeline.versions.recent_log import RecentLog


@dataclass(frozen=True)
class HistoryBuild:
    """A history's next version: its base, and the changes to add.

    ``conversions`` are columns whose stored values are converted to another type first. Without
    ``trusts_inserts``, the log does not show which keys have a current version. ``recent_log`` may have the
    rows of the changes.
    """

    source: ChangeSource
    base: Snapshot
    conversions: tuple[Conversion, ...] = ()
    trusts_inserts: bool = True
    recent_log: RecentLog | None = field(default=None, repr=False)

    @property
    def history(self) -> str:
        """Name of the history."""
        return history_name(self.source.schema.name)

    @property
    def begins(self) -> bool:
        """Whether there is no version yet that could end."""
        return count_rows(self.base) == 0

    @property
    def has_few_changes(self) -> bool:
        """Whether one task can read the changes and the copied rows."""
        copied_rows = self.source.copy.rows if self.source.copy is not None else 0
        return self.source.span.changes + copied_rows <= SINGLE_TASK_CHANGES

    def attempt(self, cut: int, token: str) -> Attempt:
        """Return the attempt to build the version; `cut` is the newest one before the plan."""
        return Attempt(self.history, self.base, self.source.span.until_inclusive, cut, token=token)


def plan_history(
    pipeline: Pipeline, spark: SparkSession, schema: TableSchema, cut: Cut | None, _handover: Handover | None
) -> HistoryBuild | MergeOutcome:
    """Return the build of a history, or the outcome if there is nothing to do or it is already done."""
    history = history_name(schema.name)
    stored_table = ensure_history(pipeline, spark, schema)
    # The rows of its copy are read in the table's present columns.
    ensure_table(pipeline, spark, pipeline.stored_schema(schema.name))
    base = require_base(published_head(stored_table, history, cut), history)
    begins = not is_published(stored_table, history, cut) or is_older_than_copy(
        pipeline, stored_table, schema, base
    )
    span = pending_span(pipeline, schema.name, applied_cycle(pipeline, stored_table, history, cut))
    outcome = find_outcome(pipeline, Base(history, stored_table, base, cut), span, is_due=begins)
    if outcome is not None:
        return outcome
    return (
        plan_whole(pipeline, spark, schema)
        if begins or span.is_late
        else plan_extension(pipeline, spark, schema, base, span)
    )


def is_older_than_copy(pipeline: Pipeline, history: Table, schema: TableSchema, version: Snapshot) -> bool:
    """Return whether a version of a history is older than its table, which has been copied again since."""
    plan = find_plan(pipeline, schema.name)
    # While the copy runs, maintenance may compact the history.
    cycles = (snapshot for snapshot in ancestors_of(history, version) if fact(snapshot, CYCLE) is not None)
    return plan is not None and next(cycles, version).timestamp_ms * 1000 < plan.planned_micros


def plan_extension(
    pipeline: Pipeline, spark: SparkSession, schema: TableSchema, base: Snapshot, span: LogSpan
) -> HistoryBuild:
    """Return the build that adds a span of the log to a history.

    If the table was dropped and recreated in the span, the history is rebuilt from its beginning: every
    version that was current at that time has ended.
    """
    schema_history = history_through(pipeline, span.until_inclusive, schema.name)
    columns = schema_history.tables.get(schema.name)
    is_trusted = trusts_inserts(pipeline, schema.name, schema_history)
    if columns is None:
        return HistoryBuild(ChangeSource(schema, span), base, trusts_inserts=is_trusted)
    if columns.beginning_after(span.after_exclusive) is not None or span.has_truncates:
        return plan_whole(pipeline, spark, schema)
    columns = columns_in_history(columns)
    history_columns = columns.schema_after(span.after_exclusive)
    return HistoryBuild(
        ChangeSource(
            history_columns,
            replace(span, has_partial_updates=span.has_partial_updates or history_columns.is_evolving),
        ),
        base,
        conversions=columns.conversions_after(span.after_exclusive),
        trusts_inserts=is_trusted,
    )


def plan_whole(pipeline: Pipeline, spark: SparkSession, schema: TableSchema) -> HistoryBuild:
    """Return the build of a whole history, from the table's initial copy and the log after it.

    Raises:
        LakeError: there was an initial copy, but it is gone.
    """
    until = read_mark(pipeline.lake.system_table(LOG)).cycle
    columns = history_through(pipeline, until, schema.name).tables.get(schema.name)
    source = find_beginning(pipeline, schema, columns, is_history=True)
    span = replace(source.span, until_inclusive=until)
    source = replace(source, span=span, keeps_truncated=True)
    history = history_name(schema.name)
    stored_table = load_table(pipeline, history)
    newest = head(stored_table)
    is_empty = newest is not None and count_rows(newest) == 0
    if newest is None or not is_empty or newest.schema_id != stored_table.metadata.current_schema_id:
        newest = empty_version(pipeline, spark, history)
    return HistoryBuild(source, newest)
