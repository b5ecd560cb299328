"""Rebuilds of tables and histories from the log: from its beginning, or from an older cut."""

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from cdc_platform.errors import CommitConflict, CutNotFound, LakeError
from cdc_platform.lake.state.cuts import find_cut, newest_cut
from cdc_platform.lake.state.lost_tables import is_lost, require_published
from cdc_platform.model.schema.table_options import history_name
from cdc_platform.pipeline.histories.history_build import extend_histories, run_history_builds
from cdc_platform.pipeline.histories.history_plan import (
    HistoryBuild,
    is_older_than_copy,
    plan_extension,
    plan_whole,
)
from cdc_platform.pipeline.merging.build import Build, MergeOutcome
from cdc_platform.pipeline.merging.merge import first_version, merge_tables, plan_build, run_builds
from cdc_platform.pipeline.merging.soft_delete import drop_markers, require_same_option
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.schema.table_ddl import ensure_history, ensure_table
from cdc_platform.pipeline.versions.change_source import whole_span
from cdc_platform.pipeline.versions.handover import find_copy
from cdc_platform.pipeline.versions.log_span import LogSpan, pending_span


@pipeline_step("rebuild")
def rebuild_table(
    pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None = None
) -> MergeOutcome:
    """Rebuild a table, bring the other tables up to the same cycle, and publish all of them.

    Tables that another program has dropped are rebuilt, too: a cut names all tables.

    Args:
        pipeline: the pipeline.
        spark: Spark session.
        table: source table, or name of a history, to rebuild.
        at_cut: number of an older cut to start from; None starts from the initial copy, or from an empty
            table if there was no copy, and needs the whole log.

    Raises:
        CutNotFound: the cut does not exist, lacks the table, or its snapshot has expired.
        LakeError: there is no cut to start from, and the initial copy is incomplete or gone.
        CommitConflict: another run has published meanwhile; the table is as that run left it.
    """
    cut = newest_cut(pipeline.lake)
    lost_tables = [name for name in pipeline.lake_tables if is_lost(pipeline.lake.table(name), name, cut)]
    starts = dict.fromkeys(lost_tables) | {table: at_cut}
    _require_copies(pipeline, starts)
    tables = [
        _plan(pipeline, spark, name, start) for name, start in starts.items() if _is_table(pipeline, name)
    ]
    outcomes = run_builds(pipeline, spark, tables, cut)
    histories = [
        _plan_history(pipeline, spark, name, start)
        for name, start in starts.items()
        if not _is_table(pipeline, name)
    ]
    outcomes += run_history_builds(pipeline, spark, histories, cut)
    outcome = next(outcome for outcome in outcomes if outcome.table == table)
    merge_tables(pipeline, spark, [other for other in pipeline.tables if other.name not in starts])
    other_histories = [other for other in pipeline.histories if history_name(other.name) not in starts]
    extend_histories(pipeline, spark, other_histories)
    new_cut = publish_cut(pipeline)
    if new_cut is None or new_cut.tables.get(table) != outcome.snapshot_id:
        raise CommitConflict(
            f"Another run has published since the rebuild of `{table}` began; start it again."
        )
    if _is_table(pipeline, table) and drop_markers(pipeline, spark, pipeline.stored_schema(table)):
        # Readers of a cut see the columns that its snapshot was committed with.
        (merged,) = merge_tables(pipeline, spark, [pipeline.table(table)])
        publish_cut(pipeline)
        return replace(outcome, snapshot_id=merged.snapshot_id)
    return outcome


def _is_table(pipeline: Pipeline, name: str) -> bool:
    """Return whether a name is that of a source table, and not of a history."""
    return pipeline.lake_tables.get(name, name) == name


def _require_copies(pipeline: Pipeline, starts: Mapping[str, int | None]) -> None:
    """Ensure, before anything changes, that the copies are complete from which tables and histories start.

    Raises:
        LakeError: one is not: until then, the columns of its table belong to it.
        LakeDamaged: the table of one is lost, and with it the copy, so no cut can name all tables.
        SettingError: the pipeline has no such table.
    """
    for name, at_cut in starts.items():
        source = pipeline.table(pipeline.lake_tables.get(name, name))
        if at_cut is not None:
            continue
        stored_table = pipeline.lake.table(source.name)
        try:
            find_copy(pipeline, stored_table, source.name)
        except LakeError:
            # Cycles fail as well, so they do not complete the copy.
            require_published(pipeline.lake, stored_table, source.name, newest_cut(pipeline.lake))
            raise


def _plan(pipeline: Pipeline, spark: SparkSession, table: str, at_cut: int | None) -> Build:
    schema = pipeline.stored_schema(table)
    stored_table = ensure_table(pipeline, spark, schema)
    if at_cut is None:
        base = first_version(pipeline, spark, stored_table, table)
        span = whole_span(pipeline, table, find_copy(pipeline, stored_table, table))
    else:
        base, cycle = _version_at(pipeline, stored_table, table, at_cut)
        span = _span_upon(pipeline, table, table, cycle, at_cut)
        require_same_option(stored_table, base, schema, at_cut)
    return plan_build(pipeline, spark, schema, base, span)


def _plan_history(pipeline: Pipeline, spark: SparkSession, history: str, at_cut: int | None) -> HistoryBuild:
    schema = pipeline.table(pipeline.lake_tables[history])
    stored_table = ensure_history(pipeline, spark, schema)
    ensure_table(pipeline, spark, pipeline.stored_schema(schema.name))
    if at_cut is None:
        return plan_whole(pipeline, spark, schema)
    base, cycle = _version_at(pipeline, stored_table, history, at_cut)
    if is_older_than_copy(pipeline, stored_table, schema, base):
        raise CutNotFound(
            f"Since cut {at_cut}, `{schema.name}` has been copied again; choose a newer cut, or none to "
            "start from that copy."
        )
    span = _span_upon(pipeline, schema.name, history, cycle, at_cut)
    return plan_extension(pipeline, spark, schema, base, span)


def _span_upon(pipeline: Pipeline, table: str, name: str, cycle: int, at_cut: int) -> LogSpan:
    """Return the span of the log after a cut; raise if it holds older replayed changes."""
    span = pending_span(pipeline, table, cycle)
    if span.is_late:
        raise CutNotFound(
            f"Since cut {at_cut}, older transactions of `{name}` have been replayed; choose a newer cut, or "
            "none to start from the log's beginning."
        )
    return span


def _version_at(pipeline: Pipeline, stored_table: Table, table: str, at_cut: int) -> tuple[Snapshot, int]:
    cut = find_cut(pipeline.lake, at_cut)
    base = stored_table.metadata.snapshot_by_id(cut.tables.get(table, -1))
    if base is None:
        raise CutNotFound(f"Table `{table}` has no snapshot of cut {at_cut} any more; choose a newer cut.")
    if base.schema_id is not None:
        ids = {field.field_id for field in stored_table.schema().fields}
        fields = stored_table.schemas()[base.schema_id].fields
        lost_names = [field.name for field in fields if field.field_id not in ids]
        # A column that was added again under the name does not have their values.
        if lost_names:
            raise CutNotFound(
                f"Since cut {at_cut}, columns of `{table}` have been dropped in the lake, with the values "
                f"that they had there: {', '.join(lost_names)}. Choose a newer cut, or none to start from "
                "the log's beginning."
            )
    return base, cut.cycle
