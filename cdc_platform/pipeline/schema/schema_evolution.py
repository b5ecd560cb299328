"""The history of the source's schema, from records and schema reads; the lake's tables follow it.

The history is derived from committed data after the end of the stored history, so the step is repeatable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Final

from pyiceberg.table import Table

from cdc_platform.errors import AccessDenied, CommitConflict, RetentionExpired, SourceNotFound
from cdc_platform.lake.commits.commits import STATS, Mark, cycles_between, fact, read_mark
from cdc_platform.lake.state.copies import load_plans_between
from cdc_platform.lake.state.schema_history import append_events, at_mark, load_history
from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.base.stored_names import LOG, QUARANTINE, RAW, SCHEMA
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumns
from cdc_platform.model.schema.recreated_tables import find_populated, find_recreated
from cdc_platform.model.schema.schema_events import SchemaEvent
from cdc_platform.model.schema.schema_finder import find_events, is_news
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.model.schema.schema_reads import PastSchemaReads, SchemaRead
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.file_contents import data_changes_between, measure_content
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.pipeline.schema.key_shapes import find_foreign_keys
from cdc_platform.pipeline.schema.schema_policies import first_columns, fixed_shapes
from cdc_platform.pipeline.schema.shape_observations import observe_columns, parse_shape, typed_table_of

SAVE_EVERY_CYCLES: Final = 20
"""Cycles without a change after which the history is also stored; new processes then skip these cycles."""


def evolve_tables(pipeline: Pipeline) -> tuple[SchemaEvent, ...]:
    """Extend the history of the source's schema to the log's end, and return the changes; needs no Spark.

    Raises:
        CommitConflict: another run did the same at the same time; the next cycle continues.
        SourceError: the source does not state its schema.
    """
    log = pipeline.lake.system_table(LOG)
    mark, history = read_mark(log), pipeline.schema_history
    if mark.position_micros is None or mark.cycle <= history.cycle:
        return ()
    schema_mark = read_mark(pipeline.lake.system_table(SCHEMA))
    if schema_mark.cycle > history.cycle:
        # Of another process, whose cycles may have left the log's snapshots already.
        pipeline.use_history(load_history(pipeline.lake))
        return evolve_tables(pipeline)
    copies = _copies(pipeline, history, mark.position_micros)
    has_news = copies or _has_records(pipeline, log, history.cycle, mark.cycle)
    if history.cycle and not has_news and not _source_has_changed(pipeline, history, mark):
        pipeline.use_history(at_mark(history, mark))
        return ()
    events = _find(pipeline, history, mark, copies)
    if events or history.cycle == 0 or mark.cycle - schema_mark.cycle >= SAVE_EVERY_CYCLES:
        append_events(pipeline.lake, at_mark(history, schema_mark), mark, events)
    for event in events:
        history = history.after(event)
    pipeline.use_history(at_mark(history, mark))
    return events


def _has_records(pipeline: Pipeline, log: Table, after_exclusive: int, until_inclusive: int) -> bool:
    """Return whether cycles have changes in the log, or records in quarantine, that report columns."""
    stats = (fact(snapshot, STATS) for snapshot in cycles_between(log, after_exclusive, until_inclusive))
    if any(column_types not in {None, "{}"} for column_types in stats):
        return True
    quarantine = pipeline.lake.system_table(QUARANTINE)
    return any(True for _ in cycles_between(quarantine, after_exclusive, until_inclusive))


def _source_has_changed(pipeline: Pipeline, history: SchemaHistory, mark: Mark) -> bool:
    """Return whether the source reports a change in a cycle without records: a suspended stream has none."""
    if not pipeline.capabilities.can_be_compared or mark.position_micros is None:
        return False
    schema_read = pipeline.read_schema(mark.position_micros)
    return bool(
        find_events(history, mark.cycle, {}, schema_read, read_back=PastSchemaReads(pipeline.read_schema))
    )


def find_exclusions(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the differences of tables from the source by design, from the lake and from a schema read.

    Raises:
        SourceError: the source does not state its schema.
    """
    history = pipeline.schema_history
    read_back = PastSchemaReads(pipeline.read_schema)
    schema_now = pipeline.read_schema(pipeline.source.clock_micros())
    schema_read = with_older_rows(pipeline, history, schema_now, read_back)
    events = find_events(history, history.cycle, {}, schema_read, read_back=read_back)
    history_now = reduce(SchemaHistory.after, events, history)
    return pipeline.findings(history_now)


def history_through(pipeline: Pipeline, cycle: int, table: str | None = None) -> SchemaHistory:
    """Return the history of the schema after checking that it covers the log up to a cycle.

    Raises:
        CommitConflict: another run has extended the log meanwhile, or has changed the columns of the table,
            whose build is planned with the former ones; the next cycle adds the others.
    """
    columns = pipeline.schema_history.tables.get(table or "")
    if pipeline.schema_history.cycle < cycle:
        evolve_tables(pipeline)
    if table is not None and pipeline.schema_history.tables.get(table) != columns:
        raise CommitConflict(f"Another run has changed the columns of `{table}`; run the cycle again.")
    return pipeline.schema_history


def _copies(pipeline: Pipeline, history: SchemaHistory, until_micros: int) -> dict[str, ObservedColumns]:
    """Return the columns of initial copies as observations of whole rows."""
    plans = load_plans_between(pipeline.lake, history.position_micros, until_micros)
    return {
        name: ObservedColumns.of_table(plan.position_micros, plan.schema, is_whole=True)
        for name, plan in plans.items()
    }


def _find(
    pipeline: Pipeline, history: SchemaHistory, mark: Mark, copies: Mapping[str, ObservedColumns]
) -> tuple[SchemaEvent, ...]:
    assert mark.position_micros is not None
    window = data_changes_between(history.position_micros, mark.position_micros)
    widens = not pipeline.capabilities.comes_in_order
    content = measure_content(pipeline.lake.system_table(RAW), history.position_micros, mark.position_micros)
    # Events of another key are in quarantine.
    orders = content.typed_tables()
    foreign = find_foreign_keys(pipeline, history, orders)
    own = {key: parse_shape(pipeline, key) for key in content.shapes if typed_table_of(key) not in foreign}
    shapes = {key: shape for key, shape in own.items() if shape is not None}
    tables = {
        shape.table
        for shape in shapes.values()
        if is_news(history, shape.table, shape.columns, is_whole=shape.is_whole, widens=widens)
    }
    tables |= {name for name, copy in copies.items() if is_news(history, name, copy.columns, is_whole=True)}
    read_back = PastSchemaReads(pipeline.read_schema)
    schema_then = pipeline.read_schema(mark.position_micros)
    schema_read = with_older_rows(pipeline, history, schema_then, read_back)
    if not widens:
        tables |= {name for name, _ in find_recreated(history, schema_read)}
    policy_tables = {
        name for name in tables if pipeline.capabilities.schema_policy_of(name) is not SchemaPolicy.EVOLVE
    }
    evolving = tables - policy_tables
    observations = observe_columns(pipeline, history, window, evolving, shapes, content) if evolving else {}
    if policy_tables:
        starts = first_columns(fixed_shapes(pipeline, content), history)
        # The table's shape is fixed, and the events with another shape are in quarantine.
        observations |= {
            name: [ObservedColumns(mark.position_micros, starts[name], is_whole=True)] for name in starts
        }
    for name in tables & copies.keys():
        table_observations = [*observations.get(name, ()), copies[name]]
        observations[name] = sorted(table_observations, key=lambda observation: observation.micros)
    return find_events(history, mark.cycle, observations, schema_read, read_back=read_back, widens=widens)


def with_older_rows(
    pipeline: Pipeline, history: SchemaHistory, schema_read: SchemaRead, read_back: PastSchemaReads
) -> SchemaRead:
    """Return the schema read with the names of new tables that may have older rows, copied or not.

    Raises:
        SourceError: the source cannot answer.
    """
    if not pipeline.capabilities.can_be_compared:
        return schema_read
    has_rows = partial(_may_have_had_rows, pipeline)
    return replace(
        schema_read,
        populated=find_populated(history, schema_read, read_back, has_rows),
        uncopied=frozenset(_uncopied_tables(pipeline, history, schema_read)),
    )


def _uncopied_tables(pipeline: Pipeline, history: SchemaHistory, schema_read: SchemaRead) -> Iterable[str]:
    """Return the new tables that lack a copy of older rows."""
    if pipeline.settings.copies_first:
        return ()
    declared_tables = pipeline.settings.tables
    new_tables = {table.name for table in schema_read.tables} - history.tables.keys()
    tables = new_tables if declared_tables is None else new_tables & {*declared_tables}
    if not tables or history.cycle:
        return tables
    first_micros = _first_micros(pipeline)
    return [name for name in sorted(tables) if _may_have_had_rows(pipeline, name, first_micros)]


def _first_micros(pipeline: Pipeline) -> int:
    """Return the time from which the change stream is read, from the lineage."""
    root = trace_lineage(pipeline).partitions.get(ROOT_TOKEN)
    return root.start_micros if root is not None else pipeline.source.start_micros()


def _may_have_had_rows(pipeline: Pipeline, table: str, micros: int) -> bool:
    try:
        return any(batch.num_rows for batch in pipeline.stream_source.rows_at(table, micros))
    except SourceNotFound:
        return False
    except (RetentionExpired, AccessDenied):
        # The source no longer knows, or does not say; only a copy of the table needs the right to read it.
        return True
