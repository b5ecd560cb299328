"""Merging a small patch in the process that runs it: Spark takes longer to plan a merge than that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import BRANCH, BYTES, cycles_between, number_of
from cdc_platform.lake.local_writer.local_table import ROW_ID_COLUMN, KeyRows, LocalTable, open_local
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.core.pipeline import Pipeline
from cdc_platform.pipeline.merging.local_rows import (
    LocalNetChanges,
    inserted_rows,
    is_newer,
    matching,
    new_rows,
)
from cdc_platform.pipeline.reading.local_read import MOST_BYTES
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.pipeline.versions.change_source import SINGLE_TASK_CHANGES
from cdc_platform.pipeline.versions.log_span import LogSpan
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, REMOVE, UPDATE, PatchStats

MOST_FILES: Final = 1_000
"""A table of more data files is Spark's: here one process reads all their entries."""
MOST_ROWS: Final = 20_000_000
"""Among more rows than these Spark looks for the keys of a patch."""
MOST_READ_BYTES: Final = 64 * 1024**2
"""The same, by what the columns that are read take in the files."""
MOST_LOOKUPS: Final = 20_000_000
"""The same, by keys of the patch times files: for each file its keys are indexed again."""
TAKEN_NAMES: Final = frozenset({"__filename", "__fragment_index", "__batch_index", "__last_in_fragment"})
"""What Arrow adds to the columns of files that it reads."""


@dataclass(frozen=True)
class LocalMerge:
    """A patch, and the rows that the table has of its keys."""

    local: LocalTable
    patch: LocalNetChanges
    found: KeyRows

    @property
    def lacks_keys(self) -> bool:
        """Whether not every key that was looked for has one row, as a source that is believed has it."""
        keys = self.found.keys
        return not len(keys) == len(np.unique(keys)) == self.patch.touched.num_rows


def find_local(pipeline: Pipeline, schema: TableSchema, base: Snapshot) -> LocalTable | None:
    """Return what this process needs to merge into a table, None where only Spark can.

    So it is where keys are floating-point numbers, whose equality is Spark's, where columns are called as
    only Spark finds them, where rows are not deleted by vectors, and where there are many files.
    """
    files_of_base = number_of(base, "total-data-files")
    is_large = files_of_base is None or files_of_base > MOST_FILES
    if is_large or not pipeline.settings.merge_here_bytes:
        return None
    table = load_table(pipeline, schema.name)
    names = {column.name for column in schema.columns}
    if names & TAKEN_NAMES or not names <= {field.name for field in table.schema().fields}:
        return None
    kinds = [table.schema().find_type(column.name) for column in schema.key_columns]
    if any(isinstance(kind, (FloatType, DoubleType)) for kind in kinds):
        return None
    return open_local(table, base)


def is_at_hand(pipeline: Pipeline, span: LogSpan) -> bool:
    """Whether this process has held all changes of a span, and so can hold what they are folded to."""
    if span.changes > SINGLE_TASK_CHANGES:
        return False
    log = pipeline.lake.system_table(LOG)
    cycles = cycles_between(log, span.after_exclusive, span.until_inclusive)
    held = [number_of(snapshot, BYTES) for snapshot in cycles]
    told = [held_bytes for held_bytes in held if held_bytes is not None]
    return len(told) == len(held) and sum(told) <= min(MOST_BYTES, pipeline.settings.merge_here_bytes)


def plan_merge(local: LocalTable, patch: LocalNetChanges) -> LocalMerge | None:
    """Return a patch with the rows that it touches, None where they are Spark's.

    So they are where too much would have to be read for them, and where they have columns that the patch
    knows nothing of, which Spark leaves as they are.
    """
    table, touched = local.table, patch.touched
    within = local.files_in_reach(touched)
    if is_much(table, within, touched, patch.needed):
        return None
    found = local.find(within, touched)
    unknown = {field.name for field in table.schema().fields} - {
        column.name for column in patch.schema.columns
    }
    return LocalMerge(local, patch, found) if not (unknown and found) else None


def is_much(table: Table, within: Sequence[DataFile], keys: pa.Table, needed: Sequence[str]) -> bool:
    """Whether it is for Spark to look for keys in files of a table, and to read columns of their rows."""
    if sum(file.record_count for file in within) > MOST_ROWS or keys.num_rows * len(within) > MOST_LOOKUPS:
        return True
    return _read_bytes(table, within, [*keys.column_names, *needed]) > MOST_READ_BYTES


def _read_bytes(table: Table, files: Sequence[DataFile], columns: Sequence[str]) -> int:
    """Return what columns take in files; all of a file where its entry does not tell."""
    wanted = table.schema().select(*columns)
    # Of a list or a struct only its elements have sizes.
    ids = [field for field in wanted.field_ids if wanted.find_type(field).is_primitive]
    return sum(_size(file, ids) for file in files)


def _size(file: DataFile, ids: Sequence[int]) -> int:
    told = file.column_sizes or {}
    return sum(told[one] for one in ids) if told.keys() >= set(ids) else file.file_size_in_bytes


def commit_merge(table: Table, merge: LocalMerge, properties: Mapping[str, str]) -> None:
    """Bring a patch into a table by one commit to its branch.

    Args:
        table: the table, whose branch is at the base.
        merge: what is brought in.
        properties: entries of the snapshot's summary.

    Raises:
        CommitConflict: another run has changed the branch; nothing was committed.
    """
    local, patch, found = replace(merge.local, table=table), merge.patch, merge.found
    matched = matching(patch, found.keys)
    old = local.read(found, patch.needed)
    newer = is_newer(patch, matched, old)
    chosen = pa.array(newer)
    # A row that is updated stays the row that it was.
    became = new_rows(patch, matched.filter(chosen), old.filter(chosen), kept=[ROW_ID_COLUMN])
    parts = [became, inserted_rows(patch, found.keys)]
    rows = _as_stored(table, pa.concat_tables(parts, promote_options="permissive"))
    local.commit(found.where(newer), rows, BRANCH, properties)


def count_actions(patch: LocalNetChanges) -> PatchStats:
    """Return how many keys a patch has for each action."""
    counted = {row["values"]: row["counts"] for row in pc.value_counts(patch.rows[ACTION]).to_pylist()}
    return PatchStats(*(counted.get(action, 0) for action in (APPEND, UPDATE, REMOVE)))


def _as_stored(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows with the columns that the table has, in its types, and with their ids."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    for name in set(schema.names) - set(rows.column_names):
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select([*schema.names, ROW_ID_COLUMN]).cast(
        schema.append(pa.field(ROW_ID_COLUMN, pa.int64()))
    )
