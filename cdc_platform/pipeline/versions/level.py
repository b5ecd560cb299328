"""Tables that a cycle leaves unchanged, found without loading them, so their number costs little time."""

from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import head, read_mark
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.log_span import tables_changed_after


def find_level(pipeline: Pipeline) -> frozenset[str]:
    """Return the tables and histories of the newest cut that have nothing new since.

    For such a table, the log has no changes after the cut, and the columns and the snapshot in the cut are
    those that the table had when this process examined it.
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


def note_level(pipeline: Pipeline, table: Table, name: str, source_table: str, cut: Cut | None) -> None:
    """Note that a table or history has nothing to merge.

    A table that was compacted since its cut is not noted: the next cut names the compacted version.
    """
    newest, published_id = head(table), cut.tables.get(name) if cut is not None else None
    if published_id is not None and newest is not None and newest.snapshot_id == published_id:
        pipeline.level_tables.note(name, published_id, pipeline.schema_history.tables.get(source_table))
