"""Columns that records show, from their shapes: where each run of records with the same columns ends."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.lake.commits.filters import above, all_of, is_any
from cdc_platform.lake.state.repeated_texts import read_repeated_texts
from cdc_platform.model.base.names import is_reserved_column
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import ObservedColumn, ObservedColumns, parse_column_types
from cdc_platform.model.stream.records import WHOLE_ROW_UPDATES
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.window_content import SHAPE, ShapeKey, TypedTable, WindowContent
from cdc_platform.pipeline.schema.shape_runs import ORDER, ShapeRuns, show_all_runs


@dataclass(frozen=True)
class RecordShape:
    """Description of a table in records of one form."""

    table: str
    columns: Mapping[str, ObservedColumn]
    is_whole: bool
    is_sure: bool


def typed_table_of(key: ShapeKey) -> TypedTable:
    """Return the table and the column types of a shape."""
    return key[0] or "", key[3] or ""


def parse_shape(pipeline: Pipeline, key: ShapeKey) -> RecordShape | None:
    """Return the description of a table in records of one shape; None if they describe none."""
    table, mod_type, capture, text = key
    columns = parse_column_types(text)
    if table is None or columns is None:
        return None
    is_record = not pipeline.capabilities.delivers_events
    if is_record and not any(column.is_primary_key for column in columns.values()):
        # The lake has no table of a key without columns.
        return None
    columns = {
        name: pipeline.source.as_stored(table, name, column)
        for name, column in columns.items()
        if column.is_primary_key or not is_reserved_column(name)
    }
    is_update = mod_type == "UPDATE" and capture in WHOLE_ROW_UPDATES
    return RecordShape(table, columns, is_whole=is_update or mod_type == "INSERT", is_sure=is_update)


def observe_columns(
    pipeline: Pipeline,
    history: SchemaHistory,
    window: str,
    tables: set[str],
    record_shapes: Mapping[ShapeKey, RecordShape],
    content: WindowContent,
) -> dict[str, list[ObservedColumns]]:
    """Return, per table and in order, the ends of each run of records with the same columns.

    Args:
        pipeline: the pipeline.
        history: the history of the schema before the window; the log has the window's records already.
        window: the filter of the window's raw records.
        tables: the tables to observe.
        record_shapes: the shapes of the window's records.
        content: facts about these shapes.
    """
    runs, by_table = ShapeRuns(), defaultdict[str, list[ShapeKey]](list)
    for key, shape in record_shapes.items():
        if shape.table in tables:
            by_table[shape.table].append(key)
    in_order = pipeline.capabilities.comes_in_order
    behind = {
        table for table, keys in by_table.items() if in_order and _goes_back(history, content, table, keys)
    }
    single = behind | {
        table
        for table, keys in by_table.items()
        if not show_all_runs(
            ((record_shapes[key].columns, content.shapes[key]) for key in keys), comes_in_order=in_order
        )
    }
    runs.add_facts(
        {key: content.shapes[key] for table in by_table.keys() - single for key in by_table[table]}
    )
    if single:
        raw = pipeline.lake.system_table(RAW)
        is_new = _logged(pipeline, history, behind)
        # Events of a cycle share their time; records of a change stream have their own.
        orders = [ORDER] if in_order and pipeline.capabilities.delivers_events else []
        for batch in read_repeated_texts(raw, window, SHAPE, "record_timestamp", "kind", *orders):
            runs.add(is_new(batch.filter(pc.is_in(batch["table_name"], pa.array(sorted(single))))))
    observations: defaultdict[str, list[ObservedColumns]] = defaultdict(list)
    for key, (micros, order) in runs.ends(record_shapes.__contains__):
        shape = record_shapes[key]
        observations[shape.table].append(
            ObservedColumns(micros, shape.columns, shape.is_whole, shape.is_sure, order if in_order else "")
        )
    return dict(observations)


def _goes_back(history: SchemaHistory, content: WindowContent, table: str, keys: Sequence[ShapeKey]) -> bool:
    """Return whether events precede a known change of their table's columns in the source's order.

    A connector that restarts sends events again; but positions of a new server may be lower, too.
    """
    columns = history.tables.get(table)
    orders = (content.shapes[key].first_order for key in keys)
    return columns is not None and any("" < order < columns.newest_order for order in orders)


def _logged(
    pipeline: Pipeline, history: SchemaHistory, tables: Collection[str]
) -> Callable[[pa.Table], pa.Table]:
    """Return the filter of the tables' events that have entered the log since a history: others repeat."""
    if not tables:
        return lambda batch: batch
    names = pa.array(sorted(tables))
    log = pipeline.lake.system_table(LOG).scan(
        all_of(is_any("table_name", [*tables]), above("cycle", history.cycle)), ("ordering_key",)
    )
    ordering_keys = log.to_arrow()["ordering_key"].combine_chunks()
    return lambda batch: batch.filter(
        pc.or_(pc.invert(pc.is_in(batch["table_name"], names)), pc.is_in(batch[ORDER], ordering_keys))
    )
