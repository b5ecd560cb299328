"""Tables that a cycle leaves unchanged, found without loading them, so their number costs little time."""

from collections.abc import Mapping

from pyiceberg.table import Table

from cdc_platform.lake.commits.commits import head, read_mark
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.log_span import tables_changed_after


def find_unchanged(pipeline: Pipeline) -> frozenset[str]:
    """Return the tables and histories of the newest cut that have nothing new since.

    For such a table, the log has no changes after the cut, and the columns and the snapshot in the cut are
    those that the table had when this process examined it.
    """
    if pipeline.examined_tables.is_empty:
        return frozenset()
    cut, log = newest_cut(pipeline.lake), pipeline.lake.system_table(LOG)
    history = pipeline.schema_history
    if cut is None or history.cycle < read_mark(log).cycle:
        return frozenset()
    changed_tables = tables_changed_after(log, cut.cycle)
    if changed_tables is None:
        return frozenset()
    return frozenset(
        name
        for name, source_table in pipeline.lake_tables.items()
        if source_table not in changed_tables
        and pipeline.examined_tables.has(name, cut.tables.get(name), history.tables.get(source_table))
    )


def note_unchanged(pipeline: Pipeline, table: Table, name: str, cut: Cut | None) -> None:
    """Note that a table or history has nothing to merge.

    A table that was compacted since its cut is not noted: the next cut names the compacted version.
    """
    newest, published_id = head(table), cut.tables.get(name) if cut is not None else None
    if published_id is not None and newest is not None and newest.snapshot_id == published_id:
        columns = pipeline.schema_history.tables.get(pipeline.lake_tables[name])
        pipeline.examined_tables.note(name, published_id, columns, table.metadata_location)


def find_unchanged_in_lake(pipeline: Pipeline) -> frozenset[str]:
    """Return the unchanged tables whose versions in the newest cut the lake still has.

    They are not loaded, so nothing else notices that another program drops or replaces one. A catalog that
    does not list metadata files only shows that one is dropped; maintenance loads the tables by turns.
    """
    unchanged_tables = find_unchanged(pipeline)
    files = pipeline.lake.table_files() if unchanged_tables else {}
    cut = newest_cut(pipeline.lake) if unchanged_tables else None
    return frozenset(name for name in unchanged_tables if _is_stored(pipeline, name, files, cut))


def _is_stored(pipeline: Pipeline, name: str, files: Mapping[str, str | None], cut: Cut | None) -> bool:
    stored_name = lake_table_name(name)
    if stored_name not in files:
        return False
    file = files[stored_name]
    if file is None or pipeline.examined_tables.has_file(name, file):
        return True
    # Another run has changed it, or another program has replaced it.
    pipeline.examined_tables.forget(name)
    table = pipeline.lake.table(name)
    if table is not None:
        note_unchanged(pipeline, table, name, cut)
    return table is not None and pipeline.examined_tables.has_file(name, table.metadata_location)
