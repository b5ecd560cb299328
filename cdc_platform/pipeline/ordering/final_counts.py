"""Counts of a window whose events all enter the log, from the content of its records."""

from collections import defaultdict
from collections.abc import Collection

from cdc_platform.model.stream.records import WHOLE_ROW_UPDATES, ModType
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.reading.window_content import ShapeFacts, ShapeKey, TypedTable, WindowContent
from cdc_platform.spark.frames.casts import LONGEST_TEXT
from cdc_platform.spark.log.order import TableStats

_WHOLE_ROWS = frozenset({ModType.INSERT.value, ModType.DELETE.value})


def final_counts(
    content: WindowContent, fitting_types: Collection[TypedTable], capabilities: SourceCapabilities
) -> dict[str, TableStats] | None:
    """Return the counts of each table; None if some event may be rejected or numbered, or many completed.

    Args:
        content: content of the window.
        fitting_types: the shapes of events whose values fit their tables.
        capabilities: capabilities of the source.
    """
    values = content.values
    if values is None or content.has_faults or values.has_unnumbered or values.longest_bytes >= LONGEST_TEXT:
        return None
    if values.lacks_values and capabilities.completes_log:
        return None
    fitting_shapes, by_table = {*fitting_types}, defaultdict[str, list[TableStats]](list)
    for shape, facts in content.shapes.items():
        table, _, _, text = shape
        if table is None or text is None or (table, text) not in fitting_shapes:
            return None
        by_table[table].append(_stats_of(shape, facts))
    return {table: _sum(stats) for table, stats in by_table.items()}


def _stats_of(shape: ShapeKey, facts: ShapeFacts) -> TableStats:
    _, kind, capture, _ = shape
    is_whole = kind in _WHOLE_ROWS or capture in WHOLE_ROW_UPDATES
    return TableStats(
        changes=facts.records,
        partial_updates=0 if is_whole else facts.records,
        truncates=facts.records if kind == ModType.TRUNCATE else 0,
        first_micros=facts.first_micros,
    )


def _sum(stats: Collection[TableStats]) -> TableStats:
    return TableStats(
        sum(shape.changes for shape in stats),
        sum(shape.partial_updates for shape in stats),
        sum(shape.truncates for shape in stats),
        min(shape.first_micros for shape in stats),
    )
