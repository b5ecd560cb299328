"""Local merge of few net changes in the process that runs the cycle: Spark takes longer to plan a merge."""

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

from cdc_platform.lake.commits.commits import BRANCH, number_of
from cdc_platform.lake.local_writer.local_table import ROW_ID_COLUMN, KeyRows, LocalTable, open_local
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.local_rows import (
    LocalNetChanges,
    inserted_rows,
    is_newer,
    matching,
    new_rows,
)
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, REMOVE, UPDATE, NetChangeStats

MAX_FILES: Final = 1_000
"""Maximum number of data files of a table for a local merge, which reads all their entries in one process."""
MAX_ROWS: Final = 20_000_000
"""Maximum number of rows that a local merge searches for the keys of net changes."""
MAX_READ_BYTES: Final = 64 * 1024**2
"""Maximum bytes of the columns that a local merge reads."""
MAX_LOOKUPS: Final = 20_000_000
"""Maximum product of net changes' keys and files: a local merge indexes the keys for each file again."""
TAKEN_NAMES: Final = frozenset({"__filename", "__fragment_index", "__batch_index", "__last_in_fragment"})
"""Columns that Arrow adds to the columns of files."""


@dataclass(frozen=True)
class LocalMerge:
    """Net changes, and the table's rows with their keys."""

    local: LocalTable
    net_changes: LocalNetChanges
    key_rows: KeyRows

    @property
    def lacks_keys(self) -> bool:
        """Whether some key lacks its row or has several, which contradicts a trusted source."""
        rows_of_key = np.bincount(self.key_rows.keys, minlength=self.net_changes.lookups.num_rows)
        return not bool((rows_of_key == 1).all())


def find_local(pipeline: Pipeline, schema: TableSchema, base: Snapshot) -> LocalTable | None:
    """Return the table for a local merge, None if only Spark can merge into it.

    Spark must merge if keys are floating-point numbers, whose equality Spark defines, if only Spark can
    resolve the names of columns, if rows are not deleted by vectors, and if there are many files.
    """
    files_of_base = number_of(base, "total-data-files")
    is_large = files_of_base is None or files_of_base > MAX_FILES
    if is_large or not pipeline.settings.local_merge_bytes:
        return None
    table = load_table(pipeline, schema.name)
    names = {column.name for column in schema.columns}
    if names & TAKEN_NAMES or not names <= {field.name for field in table.schema().fields}:
        return None
    kinds = [table.schema().find_type(column.name) for column in schema.key_columns]
    if any(isinstance(kind, (FloatType, DoubleType)) for kind in kinds):
        return None
    return open_local(table, base)


def plan_merge(local: LocalTable, net_changes: LocalNetChanges) -> LocalMerge | None:
    """Return net changes with the rows that they touch, None if Spark must merge them.

    Spark must merge them if the local merge would read too much, or if the table has columns that the net
    changes lack, which Spark leaves unchanged.
    """
    table, touched_keys = local.table, net_changes.touched
    candidate_files = local.candidate_files(touched_keys)
    if is_much(table, candidate_files, touched_keys, net_changes.read_columns):
        return None
    key_rows = local.find(candidate_files, touched_keys)
    other_columns = {field.name for field in table.schema().fields} - {
        column.name for column in net_changes.schema.columns
    }
    return LocalMerge(local, net_changes, key_rows) if not (other_columns and key_rows) else None


def is_much(table: Table, files: Sequence[DataFile], keys: pa.Table, columns: Sequence[str]) -> bool:
    """Return whether this process would read too much to find keys in files and to read their rows."""
    if sum(file.record_count for file in files) > MAX_ROWS or keys.num_rows * len(files) > MAX_LOOKUPS:
        return True
    return _read_bytes(table, files, [*keys.column_names, *columns]) > MAX_READ_BYTES


def _read_bytes(table: Table, data_files: Sequence[DataFile], columns: Sequence[str]) -> int:
    """Return the bytes of columns in files; the size of the whole file if its entry lacks them."""
    read_schema = table.schema().select(*columns)
    # Of a list or a struct only its elements have sizes.
    ids = [field for field in read_schema.field_ids if read_schema.find_type(field).is_primitive]
    return sum(_size(file, ids) for file in data_files)


def _size(file: DataFile, ids: Sequence[int]) -> int:
    column_sizes = file.column_sizes or {}
    return (
        sum(column_sizes[field_id] for field_id in ids)
        if column_sizes.keys() >= set(ids)
        else file.file_size_in_bytes
    )


def commit_merge(table: Table, merge: LocalMerge, properties: Mapping[str, str]) -> int:
    """Merge net changes into a table by one commit to its branch, and return the snapshot's id.

    Args:
        table: the table, whose branch is at the base.
        merge: the net changes with the table's rows.
        properties: entries of the snapshot's summary.

    Raises:
        CommitConflict: another run has changed the branch; nothing was committed.
    """
    local, net_changes, key_rows = replace(merge.local, table=table), merge.net_changes, merge.key_rows
    changes = matching(net_changes, key_rows.keys)
    rows_before = local.read(key_rows, net_changes.read_columns)
    is_changed = is_newer(net_changes, changes, rows_before)
    mask = pa.array(is_changed)
    # An updated row keeps its identity.
    updated_rows = new_rows(
        net_changes, changes.filter(mask), rows_before.filter(mask), extra_columns=[ROW_ID_COLUMN]
    )
    parts = [updated_rows, inserted_rows(net_changes, key_rows.keys)]
    rows = to_table_rows(table, pa.concat_tables(parts, promote_options="permissive"))
    return local.commit(key_rows.where(is_changed), rows, BRANCH, properties)


def count_actions(net_changes: LocalNetChanges) -> NetChangeStats:
    """Return the number of keys for each action of net changes."""
    counts = {row["values"]: row["counts"] for row in pc.value_counts(net_changes.rows[ACTION]).to_pylist()}
    return NetChangeStats(*(counts.get(action, 0) for action in (APPEND, UPDATE, REMOVE)))


def to_table_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows with the columns and types of the table and row ids, NULL where they lack any."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    schema = schema.append(pa.field(ROW_ID_COLUMN, pa.int64()))
    for name in set(schema.names) - set(rows.column_names):
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select(schema.names).cast(schema)
