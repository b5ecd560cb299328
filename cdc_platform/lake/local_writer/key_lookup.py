"""Lookup of the rows of some keys in the files of a table."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from os import cpu_count
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyroaring import BitMap64

from cdc_platform.lake.local_writer.deletion_vectors import read_vector
from cdc_platform.lake.local_writer.table_files import TableFiles
from cdc_platform.lake.manifests.stored_manifests import FILE_FIRST_ROW_ID, V3

Positions = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]
Bound = int | str

MISSING: Final = -1
ROW_ID: Final = NestedField(2147483540, "_row_id", LongType(), required=False)
"""Iceberg's reserved column, which a file has if its rows' ids do not follow from their positions."""
BATCH_ROWS: Final = 1 << 16
"""Rows of a file that are in memory at a time, mostly of keys that are not looked up."""
_NUMBERS: Final = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True)
class MatchedRows:
    """Rows of one data file that match a lookup.

    Args:
        file: the data file.
        positions: their positions in it, ascending.
        keys: the key of each row, as its number among the keys.
        deleted: positions of the file's deleted rows.
    """

    file: DataFile
    positions: Positions
    keys: Codes
    deleted: BitMap64

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.positions)

    def where(self, mask: npt.NDArray[np.bool_]) -> "MatchedRows":
        """Return the chosen rows."""
        return replace(self, positions=self.positions[mask], keys=self.keys[mask])


class KeyIndex:
    """Finds the key of a row among some keys; NULL equals NULL, as in Spark's `<=>`."""

    def __init__(self, keys: pa.Table) -> None:
        """Index distinct keys, each a row of key columns."""
        self.names: list[str] = keys.column_names
        self._types: list[pa.DataType] = keys.schema.types
        self._values = [pc.unique(_comparable(keys[name])) for name in self.names]
        self._combined: list[pa.Array] = []
        codes = self._look_up(keys, 0)
        for place in range(1, len(self.names)):
            self._combined.append(pc.unique(pa.array(self._combine(codes, keys, place))))
            codes = self._narrow(self._combine(codes, keys, place), place)

    def find(self, rows: pa.Table) -> Codes:
        """Return the number of each row's key, from 0, or `MISSING`."""
        codes = self._look_up(rows, 0)
        for place in range(1, len(self.names)):
            codes = self._narrow(self._combine(codes, rows, place), place)
        return codes

    def _look_up(self, rows: pa.Table, place: int) -> Codes:
        column = rows[self.names[place]].cast(self._types[place])
        return _codes(pc.index_in(_comparable(column), value_set=self._values[place]))

    def _combine(self, codes: Codes, rows: pa.Table, place: int) -> Codes:
        further = self._look_up(rows, place)
        pair_codes = codes * len(self._values[place]) + further
        return np.where((codes == MISSING) | (further == MISSING), MISSING, pair_codes)

    def _narrow(self, codes: Codes, place: int) -> Codes:
        """Renumber the combined codes to keep the numbers small."""
        return _codes(pc.index_in(pa.array(codes), value_set=self._combined[place - 1]))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return values that are equal if those of a column are; Arrow does not compare arrays."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())


def _codes(values: pa.Array | pa.ChunkedArray) -> Codes:
    filled_values = pc.fill_null(values, MISSING)
    chunk = filled_values.combine_chunks() if isinstance(filled_values, pa.ChunkedArray) else filled_values
    codes: Codes = chunk.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def candidate_files(table: Table, files: Sequence[DataFile], keys: pa.Table) -> list[DataFile]:
    """Return the files that may have rows of some keys, according to the bounds of the first key column.

    Args:
        table: the table of the files.
        files: data files.
        keys: the keys, by the names of the table's columns.
    """
    field = table.schema().find_field(keys.column_names[0])
    extent = _extent(keys.column(0), field.field_type)
    if extent is None:
        return list(files)
    low, high = extent
    return [file for file in files if _reaches(file, field.field_id, field.field_type, low, high)]


def _extent(column: pa.ChunkedArray, kind: IcebergType) -> tuple[Bound, Bound] | None:
    """Return the smallest and the greatest key in the form of stored bounds; None if not comparable."""
    if column.null_count or not len(column) or not isinstance(kind, (*_NUMBERS, StringType)):
        return None
    if isinstance(kind, DateType):
        column = column.cast(pa.int32())
    elif not isinstance(kind, StringType):
        column = column.cast(pa.int64())
    extremes = pc.min_max(column).as_py()
    return extremes["min"], extremes["max"]


def _reaches(file: DataFile, field_id: int, kind: IcebergType, low: Bound, high: Bound) -> bool:
    lower, upper = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    if lower is None or upper is None:
        return True
    least, greatest = _read_bound(lower, kind), _read_bound(upper, kind)
    return bool(least <= high and low <= greatest)  # type: ignore[operator]  # both are of the column's type


def _read_bound(data: bytes, kind: IcebergType) -> Bound:
    # Integers have four bytes if the file is older than the column's type.
    return data.decode() if isinstance(kind, StringType) else int.from_bytes(data, "little", signed=True)


def find_rows(
    table: Table, files: TableFiles, within: Sequence[DataFile], keys: pa.Table
) -> list[MatchedRows]:
    """Return the rows of some keys, for each data file that has any.

    Args:
        table: the table.
        files: the files of the snapshot.
        within: the data files to read.
        keys: distinct keys, by the names of the table's columns.
    """
    seek = partial(_find_in, table, files, _fields(table, keys.column_names), KeyIndex(keys))
    with ThreadPoolExecutor(max_workers=cpu_count()) as pool:
        return [rows for rows in pool.map(seek, within) if len(rows)]


def read_rows(table: Table, found_rows: Sequence[MatchedRows], columns: Sequence[str]) -> pa.Table:
    """Return columns of matched rows in order, with the table's current types, and their row ids.

    The id of a row, in the column `_row_id`, is its stored one, or else follows from its position.
    """
    fields = _fields(table, columns, ROW_ID)

    def read(rows: MatchedRows) -> pa.Table:
        is_matched = np.zeros(rows.file.record_count, dtype=np.bool_)
        is_matched[rows.positions] = True
        file_rows = _read(table, rows.file, fields, is_matched)
        first = rows.file[FILE_FIRST_ROW_ID]
        row_ids = pa.array(rows.positions + first) if first is not None else pa.nulls(len(rows), pa.int64())
        place = file_rows.schema.get_field_index(ROW_ID.name)
        return file_rows.set_column(place, ROW_ID.name, pc.coalesce(file_rows[ROW_ID.name], row_ids))

    with ThreadPoolExecutor(max_workers=cpu_count()) as pool:
        parts = [_no_rows(fields), *pool.map(read, found_rows)]
    return pa.concat_tables(parts, promote_options="permissive")


def _fields(table: Table, columns: Sequence[str], *further: NestedField) -> Schema:
    return Schema(*(table.schema().find_field(name) for name in columns), *further)


def _no_rows(fields: Schema) -> pa.Table:
    return schema_to_pyarrow(fields, include_field_ids=False).empty_table()


def _read(
    table: Table, file: DataFile, fields: Schema, is_chosen: npt.NDArray[np.bool_] | None = None
) -> pa.Table:
    """Return fields of a file's rows, or of chosen ones, which are kept as they are read.

    A scan of pyiceberg reads most of a file ahead, into memory that the system must fill with zeros.
    """
    parts, begin = [_no_rows(fields)], 0
    with table.io.new_input(file.file_path).open() as stream, pq.ParquetFile(stream) as parquet:
        stored_schema = pyarrow_to_schema(parquet.schema_arrow, table.name_mapping(), format_version=V3)
        present = prune_columns(stored_schema, {field.field_id for field in fields.fields})
        for batch in parquet.iter_batches(BATCH_ROWS, columns=[field.name for field in present.fields]):
            rows = _to_requested_schema(fields, present, batch, allow_timestamp_tz_mismatch=True)
            if is_chosen is not None:
                # Taking rows by number would make Arrow put all texts of a batch into one array.
                rows = rows.filter(pa.array(is_chosen[begin : begin + batch.num_rows]))
            parts.append(pa.Table.from_batches([rows]))
            begin += batch.num_rows
    return pa.concat_tables(parts, promote_options="permissive")


def _find_in(table: Table, files: TableFiles, fields: Schema, index: KeyIndex, file: DataFile) -> MatchedRows:
    codes = index.find(_read(table, file, fields))
    rows = MatchedRows(file, np.flatnonzero(codes != MISSING), codes[codes != MISSING], BitMap64())
    vector = files.vectors.get(file.file_path)
    if vector is None or not len(rows):
        return rows
    deletions = read_vector(table.io, vector.data_file)
    is_gone = np.zeros(file.record_count, dtype=np.bool_)
    is_gone[np.array(deletions.to_array(), dtype=np.int64)] = True
    return replace(rows, deleted=deletions).where(~is_gone[rows.positions])
