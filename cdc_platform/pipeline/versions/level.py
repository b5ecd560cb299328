"""Tables that a cycle leaves as they are, found without loading them: their number must not slow it down."""

from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import head, read_mark
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.log_span import tables_changed_after


def find_level(pipeline: Pipeline) -> frozenset[str]:
    """Return the tables and histories that the newest cut has, and for which there is nothing new since.

    That is so where the log has no change of them after the cut, their columns are those that they had when
    this process looked at them, and the cut still names the snapshot that they had then.
    """
    if pipeline.level_tables.is_empty:
        return frozenset()
    cut, log = newest_cut(pipeline.lake), pipeline.lake.system_table(LOG)
    history = pipeline.schema_history
    if cut is None or history.cycle < read_mark(log).cycle:
        return frozenset()
    changed = tables_changed_after(log, cut.cycle)
    if changed is None:
        return frozenset()
    return frozenset(
        name
        for name, source_table in pipeline.lake_tables.items()
        if source_table not in changed
        and pipeline.level_tables.has(name, cut.tables.get(name), history.tables.get(source_table))
    )


def note_level(pipeline: Pipeline, stored: Table, name: str, source_table: str, cut: Cut | None) -> None:
    """Take note of a table or history that has nothing to be merged.

    Not of one that was compacted since its cut: the next cut names what compaction has made.
    """
    newest, named = head(stored), cut.tables.get(name) if cut is not None else None
    if named is not None and newest is not None and newest.snapshot_id == named:
        pipeline.level_tables.note(name, named, pipeline.schema_history.tables.get(source_table))
