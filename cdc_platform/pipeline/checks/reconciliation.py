"""Reconciliation: comparison of a table at its cut with a strong read of the source at the cut's position."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from cdc_platform.lake.commits.filters import equals
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.lake.state.lost_tables import stored_version
from cdc_platform.lake.state.schema_history import load_history_at
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory, same_type
from cdc_platform.model.schema.exclusions import NOTHING, Exclusion, late_columns, table_exclusions
from cdc_platform.model.schema.table_options import DELETED, keeps_deleted
from cdc_platform.model.schema.table_schema import ColumnType, TableSchema, spark_type
from cdc_platform.pipeline.merging.soft_delete import stored_at
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table

NAMED_KEYS: Final = 10
"""Number of differing keys that a failed reconciliation names."""


@dataclass(frozen=True)
class Checksum:
    """Row count and the sum of the rows' hashes modulo 2 to the 64; independent of the rows' order."""

    rows: int
    sum: int


@dataclass(frozen=True)
class Differences:
    """Rows that are only in the source, only in the lake, and in both with different values.

    A row that the lake has twice counts once as only in the lake.

    ``keys`` are the first differing ones, as JSON.
    """

    missing: int = 0
    surplus: int = 0
    changed: int = 0
    keys: tuple[str, ...] = ()

    def are_explained(self, by: Exclusion) -> bool:
        """Return whether the change stream's exclusions can cause all of these differences."""
        return (
            (by.missing or not self.missing)
            and (by.surplus or not self.surplus)
            and (by.changed or not self.changed)
        )


@dataclass(frozen=True)
class Reconciliation:
    """Both sides of the comparison of one table.

    ``uncompared`` are columns that one side lacks entirely or in part; ``exclusion`` is the part of the
    table that the change stream leaves out.
    """

    table: str
    source: Checksum
    lake: Checksum
    differences: Differences = Differences()
    uncompared: tuple[str, ...] = ()
    exclusion: Exclusion = NOTHING

    @property
    def is_equal(self) -> bool:
        """Whether both sides are equal."""
        return self.source == self.lake

    @property
    def holds(self) -> bool:
        """Whether both sides are equal, or differ only as the change stream's definition requires."""
        return self.is_equal or self.differences.are_explained(self.exclusion)


def reconcile_tables(
    pipeline: Pipeline, cut: Cut, covers: Callable[[str], bool] = lambda _table: True
) -> tuple[list[Reconciliation], tuple[str, ...]]:
    """Compare the tables at a cut that `covers` selects, by default all, with the source at its position.

    Returns:
        the reconciliations, and the tables of the cut that the change stream did not watch at that position.
    """
    history = load_history_at(pipeline.lake, cut.cycle)
    source_tables = {table.name: table for table in pipeline.read_schema(cut.position_micros).tables}
    candidates = [table for table in pipeline.tables if table.name in cut.tables and covers(table.name)]
    reconciliations = [
        reconcile_table(pipeline, history, table, source_tables[table.name], cut)
        for table in candidates
        if table.name in source_tables
    ]
    return reconciliations, tuple(table.name for table in candidates if table.name not in source_tables)


def reconcile_table(
    pipeline: Pipeline, history: SchemaHistory, table: TableSchema, source_table: TableSchema, cut: Cut
) -> Reconciliation:
    """Compare one table at a cut with the source at the cut's position.

    ``history`` is the schema's history at the cut; ``source_table`` has the table's watched columns at that
    position, according to the source.
    """
    columns = history.tables.get(table.name, ColumnHistory(table.name))
    lake_schema = columns.schema if columns.versions else table
    columns_to_compare = _comparable_columns(lake_schema, source_table, late_columns(columns))
    names = {column.name for column in columns_to_compare.columns}
    both_sides = (column.name for column in (*lake_schema.columns, *source_table.columns))
    every = (*both_sides, *columns.unwatched, *columns.generated)
    source = checksum(_source_rows(pipeline, columns_to_compare, cut), columns_to_compare)
    lake = checksum(_lake_rows(pipeline, columns_to_compare, cut), columns_to_compare)
    return Reconciliation(
        table=table.name,
        source=source,
        lake=lake,
        differences=Differences() if source == lake else _differences(pipeline, columns_to_compare, cut),
        uncompared=tuple(dict.fromkeys(name for name in every if name not in names)),
        exclusion=table_exclusions(history, columns),
    )


def _comparable_columns(
    lake_schema: TableSchema, source_schema: TableSchema, late_columns: tuple[str, ...]
) -> TableSchema:
    """Return the columns that both sides have, with one type and all values."""
    types = {column.name: column.type for column in source_schema.columns}
    common = (
        column
        for column in lake_schema.columns
        if column.name in types
        and _is_comparable(column.type, types[column.name])
        and column.name not in late_columns
    )
    return TableSchema(lake_schema.name, tuple(common))


def _is_comparable(first: ColumnType, other: ColumnType) -> bool:
    """Return whether two spellings of one type have values of one form; an enum may have two."""
    return same_type(first, other) and spark_type(first) == spark_type(other)


def checksum(batches: Iterable[pa.RecordBatch], table: TableSchema) -> Checksum:
    """Return a checksum of rows that does not depend on their order and batches."""
    rows, total = 0, 0
    for batch in batches:
        rows += batch.num_rows
        total += int(hash_rows(batch, table).sum(dtype=np.uint64))
    return Checksum(rows, total % 2**64)


def hash_rows(batch: pa.RecordBatch, table: TableSchema) -> "np.typing.NDArray[np.uint64]":
    """Return a 64-bit hash of each row, equal for equal values regardless of their Arrow type."""
    frame = pd.DataFrame(
        {str(index): _plain(batch.column(column.name)) for index, column in enumerate(table.columns)}
    )
    return np.asarray(pd.util.hash_pandas_object(frame, index=False), dtype=np.uint64)


def _plain(column: pa.Array) -> "pd.Series[Any]":
    """Return a column as values with equal hashes on both sides; values without a plain type become JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pd.Series(
            column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist(), dtype=object
        ).map(repr)
    if pa.types.is_nested(kind) or pa.types.is_large_list(kind):
        return pd.Series([json.dumps(value, default=str) for value in column.to_pylist()], dtype=object)
    return pd.Series(column.to_pylist(), dtype=object).map(repr)


def _source_rows(pipeline: Pipeline, table: TableSchema, cut: Cut) -> Iterator[pa.RecordBatch]:
    return pipeline.stream_source.rows_at(table.name, cut.position_micros)


def _lake_rows(pipeline: Pipeline, table: TableSchema, cut: Cut) -> Iterator[pa.RecordBatch]:
    lake_table: Table = load_table(pipeline, table.name)
    columns = tuple(column.name for column in table.columns)
    # With `soft_delete`, a table keeps deleted rows, which the source lacks.
    has_deleted = keeps_deleted(stored_at(pipeline, table, cut.tables[table.name]))
    lives = equals(DELETED, value=False) if has_deleted else AlwaysTrue()
    version = stored_version(lake_table, cut.tables[table.name])
    snapshot_id = cut.tables[table.name] if version is None else version.snapshot_id
    yield from lake_table.scan(
        lives, snapshot_id=snapshot_id, selected_fields=columns
    ).to_arrow_batch_reader()


def _differences(pipeline: Pipeline, table: TableSchema, cut: Cut) -> Differences:
    source = _hash_by_key(_source_rows(pipeline, table, cut), table)
    lake = _hash_by_key(_lake_rows(pipeline, table, cut), table)
    gaps = {key: len(lake.get(key, ())) - len(source.get(key, ())) for key in source.keys() | lake.keys()}
    pairs = [key for key, count in gaps.items() if count == 0 and sorted(source[key]) != sorted(lake[key])]
    missing, surplus = (sum(max(sign * count, 0) for count in gaps.values()) for sign in (-1, 1))
    keys = sorted([*pairs, *(key for key, count in gaps.items() if count)])[:NAMED_KEYS]
    return Differences(missing, surplus, len(pairs), tuple(keys))


def _hash_by_key(batches: Iterable[pa.RecordBatch], table: TableSchema) -> dict[str, list[int]]:
    """Return the hashes of the rows of each key; several rows of one key are a difference, too."""
    names = [column.name for column in table.key_columns]
    hashes: dict[str, list[int]] = {}
    for batch in batches:
        keys = batch.select(names).to_pylist()
        for key, value in zip(keys, hash_rows(batch, table), strict=True):
            hashes.setdefault(json.dumps(key, default=str), []).append(int(value))
    return hashes
