"""Histories that few changes extend: Spark computes the versions, and this process commits them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from cdc_platform.lake.commits.commits import BRANCH
from cdc_platform.lake.local_writer.local_table import KeyRows, LocalTable
from cdc_platform.model.schema.table_options import IS_CURRENT, VALID_FROM, VALID_TO
from cdc_platform.pipeline.histories.history_plan import HistoryBuild
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.merging.local_merge import MAX_READ_BYTES, find_local, is_much, to_table_rows
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import Attempt
from cdc_platform.pipeline.versions.change_source import SINGLE_TASK_CHANGES
from cdc_platform.pipeline.versions.recent_log import fits_in_memory
from cdc_platform.spark.tables.net_changes import ACTION, UPDATE
from cdc_platform.spark.tables.row_versions import CLOSED_AT

NO_VERSIONS: Final = KeyRows([])
MAX_VERSIONS: Final = SINGLE_TASK_CHANGES
"""Maximum number of stored versions that this process replaces: one late change rebuilds all of its row."""


@dataclass(frozen=True)
class LocalChange:
    """A change of a history: versions to remove, and those that take their places, with their row ids."""

    local: LocalTable
    former_versions: KeyRows = NO_VERSIONS
    ended_versions: pa.Table = field(default_factory=lambda: pa.table({}))
    lacks_keys: bool = False
    """Whether a key has no version to end."""
    reaches_back: bool = False
    """Whether a key has a version that began no earlier than the changes."""


def find_local_history(pipeline: Pipeline, build: HistoryBuild) -> LocalTable | None:
    """Return the history for a commit of this process, None if only Spark can extend it.

    Spark must do so if stored values are converted first, if there are copied rows, if there are many
    changes, and in the cases of `find_local`.
    """
    source = build.source
    has_copy = source.copy is not None and source.copy.head is not None
    if build.conversions or has_copy or not fits_in_memory(pipeline, source.span):
        return None
    return find_local(pipeline, replace(source.schema, name=build.history), build.base)


def find_ended_versions(
    pipeline: Pipeline, build: HistoryBuild, touched_keys: DataFrame, *, trusts_inserts: bool
) -> LocalChange | None:
    """Return the current versions that a span's changes end, None if Spark must find them.

    Args:
        pipeline: the pipeline.
        build: the history's next version.
        touched_keys: the result of `find_touched` for the span.
        trusts_inserts: whether only keys that, by the log, existed before can have a version to end.
    """
    local = find_local_history(pipeline, build)
    if local is None:
        return None
    keys = touched_keys.toArrow()
    if trusts_inserts:
        keys = keys.filter(pc.equal(keys[ACTION], UPDATE))
    current = _find(local, build, keys, {IS_CURRENT: True})
    if current is None:
        return None
    rows = local.read(current, [field.name for field in local.table.schema().fields])
    # Whatever the history's partitions are.
    current, rows = current.where(rows[IS_CURRENT].to_numpy()), rows.filter(rows[IS_CURRENT])
    closed_at = keys[CLOSED_AT].take(pa.array(current.keys)).cast(rows[VALID_FROM].type)
    is_older = pc.less(rows[VALID_FROM], closed_at)
    older_rows = rows.filter(is_older)
    ended_rows = older_rows.drop_columns([VALID_TO, IS_CURRENT])
    ended_rows = ended_rows.append_column(VALID_TO, closed_at.filter(is_older))
    ended_rows = ended_rows.append_column(IS_CURRENT, pa.array([False] * len(ended_rows), pa.bool_()))
    return LocalChange(
        local,
        current.where(is_older.to_numpy()),
        ended_rows,
        lacks_keys=len(ended_rows) != len(keys),
        reaches_back=len(ended_rows) != len(rows),
    )


def find_all_versions(pipeline: Pipeline, build: HistoryBuild, row_keys: DataFrame) -> LocalChange | None:
    """Return the removal of all versions of some keys, None if Spark must remove them."""
    local = find_local_history(pipeline, build)
    if local is None:
        return None
    versions = _find(local, build, row_keys.toArrow(), {})
    return LocalChange(local, versions) if versions is not None and len(versions) <= MAX_VERSIONS else None


def _find(
    local: LocalTable, build: HistoryBuild, keys: pa.Table, partition: Mapping[str, object]
) -> KeyRows | None:
    """Return the versions of some keys, None if they may be too large for this process."""
    names = [column.name for column in build.source.schema.key_columns]
    row_keys = keys.select(names)
    files = local.candidate_files(row_keys, partition)
    columns = [field.name for field in local.table.schema().fields]
    if is_much(local.table, files, row_keys, columns):
        return None
    # A version has all columns, even if its change names few.
    stored_bytes = sum(file.file_size_in_bytes for file in files)
    versions = sum(file.record_count for file in files)
    is_large = stored_bytes * build.source.span.changes > MAX_READ_BYTES * versions
    return None if is_large else local.find(files, row_keys)


def commit_versions(table: Table, attempt: Attempt, change: LocalChange, versions: pa.Table) -> MergeOutcome:
    """Commit a change of a history, with new versions, to its branch, which is at the base.

    Raises:
        CommitConflict: another run has worked on the branch at the same time.
    """
    rows = pa.concat_tables([to_table_rows(table, part) for part in (change.ended_versions, versions)])
    local = replace(change.local, table=table)
    properties = attempt.properties() | attempt.completion(commits=1)
    snapshot_id = local.commit(change.former_versions, rows, BRANCH, properties)
    return MergeOutcome.of(attempt, snapshot_id, len(versions), len(change.ended_versions))
