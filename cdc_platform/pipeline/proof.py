"""The proof: a table at its cut equals a strong read of the source at the cut's position."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.table import Table

from cdc_platform.lake.cuts import Cut
from cdc_platform.model.table_options import DELETED, keeps_deleted
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.pipeline.branch import load_table
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.soft_delete import stored_at

NAMED_KEYS: Final = 10
"""How many differing keys a failed proof names."""


@dataclass(frozen=True)
class Checksum:
    """Row count and the sum of the rows' hashes, modulo 2 to the 64: independent of the rows' order."""

    rows: int
    sum: int


@dataclass(frozen=True)
class Proof:
    """Both sides of the comparison of one table; ``differing_keys`` are the first ones, as JSON."""

    table: str
    source: Checksum
    lake: Checksum
    differing_keys: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether both sides are equal."""
        return self.source == self.lake


def prove_table(pipeline: Pipeline, table: TableSchema, cut: Cut) -> Proof:
    """Compare one table at a cut with the source at the cut's position."""
    source = checksum(_source_rows(pipeline, table, cut), table)
    lake = checksum(_lake_rows(pipeline, table, cut), table)
    differing: tuple[str, ...] = ()
    if source != lake:
        differing = _differing_keys(
            _source_rows(pipeline, table, cut), _lake_rows(pipeline, table, cut), table
        )
    return Proof(table.name, source, lake, differing)


def checksum(batches: Iterable[pa.RecordBatch], table: TableSchema) -> Checksum:
    """Return the checksum of rows that arrive in any order and any batches."""
    rows, total = 0, 0
    for batch in batches:
        rows += batch.num_rows
        total += int(hash_rows(batch, table).sum(dtype=np.uint64))
    return Checksum(rows, total % 2**64)


def hash_rows(batch: pa.RecordBatch, table: TableSchema) -> "np.typing.NDArray[np.uint64]":
    """Return a 64-bit hash of each row, equal for equal values whatever the Arrow type that carries them."""
    frame = pd.DataFrame(
        {str(index): _plain(batch.column(column.name)) for index, column in enumerate(table.columns)}
    )
    return np.asarray(pd.util.hash_pandas_object(frame, index=False), dtype=np.uint64)


def _plain(column: pa.Array) -> "pd.Series[Any]":
    """Return a column as values that hash the same on both sides; what has no plain type becomes JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pd.Series(
            column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist(), dtype=object
        ).map(repr)
    if pa.types.is_nested(kind) or pa.types.is_large_list(kind):
        return pd.Series([json.dumps(value, default=str) for value in column.to_pylist()], dtype=object)
    return pd.Series(column.to_pylist(), dtype=object).map(repr)


def _source_rows(pipeline: Pipeline, table: TableSchema, cut: Cut) -> Iterator[pa.RecordBatch]:
    return pipeline.source.rows_at(table.name, cut.position_micros)


def _lake_rows(pipeline: Pipeline, table: TableSchema, cut: Cut) -> Iterator[pa.RecordBatch]:
    found: Table = load_table(pipeline, table.name)
    columns = tuple(column.name for column in table.columns)
    # Deleted rows that stay are the lake's alone.
    has_deleted = keeps_deleted(stored_at(pipeline, table, cut.tables[table.name]))
    lives = EqualTo(DELETED, False) if has_deleted else AlwaysTrue()
    scan = found.scan(lives, snapshot_id=cut.tables[table.name], selected_fields=columns)
    yield from scan.to_arrow_batch_reader()


def _differing_keys(
    source: Iterable[pa.RecordBatch], lake: Iterable[pa.RecordBatch], table: TableSchema
) -> tuple[str, ...]:
    left, right = _hash_by_key(source, table), _hash_by_key(lake, table)
    differing = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
    return tuple(differing[:NAMED_KEYS])


def _hash_by_key(batches: Iterable[pa.RecordBatch], table: TableSchema) -> dict[str, list[int]]:
    """Return the hashes of the rows of each key; a key that has several rows is a difference, too."""
    names = [column.name for column in table.key_columns]
    hashes: dict[str, list[int]] = {}
    for batch in batches:
        keys = batch.select(names).to_pylist()
        for key, value in zip(keys, hash_rows(batch, table), strict=True):
            hashes.setdefault(json.dumps(key, default=str), []).append(int(value))
    return hashes
