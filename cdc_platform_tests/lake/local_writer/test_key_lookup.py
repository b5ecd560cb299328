"""Finding the rows of keys: exactly those that have one of them, in the files that may have them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.local_writer.key_lookup import MISSING, KeyIndex, candidate_files, find_rows, read_rows
from cdc_platform.lake.local_writer.manifests import with_version_3
from cdc_platform.lake.local_writer.table_files import TableFiles

ROWS_PER_READ: Final = 131_072
"""Rows of a batch in which Arrow reads a file."""
VALUES: Final = {
    pa.int64(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "A", "a ", "ä", "${x}"]),
    pa.binary(): st.sampled_from([b"", b"\x00", b"\xff\xfe"]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.sampled_from([date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    pa.timestamp("us", "UTC"): st.sampled_from(
        [datetime(2020, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    ),
    pa.decimal128(38, 9): st.sampled_from([Decimal("0.000000001"), Decimal(-1), Decimal(10) ** 28]),
    pa.list_(pa.int64()): st.sampled_from([(), (1,), (1, 2), (12,), (None,)]),
    pa.list_(pa.string()): st.sampled_from([(), ("",), ("a", "b"), ("a', 'b",), ("None",), (None,)]),
}


@st.composite
def keys_and_rows(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Return different keys of up to four columns, some of them NULL, and rows that may have them."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    key = st.tuples(*(st.none() | VALUES[kind] for kind in types))
    keys = draw(st.lists(key, min_size=1, max_size=8, unique=True))
    rows = draw(st.lists(st.sampled_from(keys) | key, max_size=20))
    return _as_table(types, keys), _as_table(types, rows)


def _as_table(types: list[pa.DataType], rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    names = [f"k{place}" for place in range(len(types))]
    half = len(rows) // 2
    whole = pa.table(columns, names=names)
    # A file comes as several batches.
    return pa.concat_tables([whole.slice(0, half), whole.slice(half)])


@given(drawn=keys_and_rows())
def test_a_row_has_the_key_that_equals_its_own(drawn: tuple[pa.Table, pa.Table]) -> None:
    """For all types, NULL equals NULL and nothing else."""
    keys, rows = drawn
    tuples = [list(row.values()) for row in keys.to_pylist()]
    expected = [
        tuples.index(key) if key in tuples else MISSING
        for key in (list(row.values()) for row in rows.to_pylist())
    ]
    assert expected == KeyIndex(keys).find(rows).tolist()


def made_table(folder: Path, *files: pa.Table) -> tuple[Table, TableFiles]:
    """Return a table that pyiceberg has written, a file for each part."""
    catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", files[0].schema)
    for rows in files:
        table.append(rows)
    assert head(table) is not None
    return table, files_of(table)


def files_of(table: Table) -> TableFiles:
    """Return the files of a table, with room for what only tables of version 3 say of them."""
    files = []
    for task in table.scan().plan_files():
        file = with_version_3(task.file)
        file.spec_id = task.file.spec_id
        files.append(file)
    return TableFiles((), tuple(files), {})


@pytest.mark.parametrize(
    ("first", "second", "looked_up"),
    [
        ([-9, -1], [1, 5], [-1]),
        ([date(1960, 1, 1)], [date(1980, 1, 1), date(1990, 1, 1)], [date(1985, 1, 1)]),
        (["a" * 40, "b" * 40], ["c"], ["b" * 41]),  # bounds are of their first 16 letters
        (["é"], ["ü", "日本"], ["日本"]),
        (
            [datetime(1969, 1, 1, tzinfo=UTC)],
            [datetime(2024, 1, 1, tzinfo=UTC)],
            [datetime(1969, 1, 1, tzinfo=UTC)],
        ),
    ],
)
def test_only_files_whose_bounds_exclude_all_keys_are_left_out(
    tmp_path: Path, first: list[Any], second: list[Any], looked_up: list[Any]
) -> None:
    """One of two files is, where the keys lie within the bounds of the other."""
    table, files = made_table(tmp_path, pa.table({"id": first}), pa.table({"id": second}))
    within = candidate_files(table, files.data, pa.table({"id": looked_up}))
    assert len(within) == 1
    everything = pa.table({"id": [*first, *second]})
    assert len(candidate_files(table, files.data, everything)) == 2


def test_a_null_key_may_be_in_any_file(tmp_path: Path) -> None:
    """Bounds do not cover NULL."""
    table, files = made_table(tmp_path, pa.table({"id": [1, None]}), pa.table({"id": [5]}))
    keys = pa.table({"id": pa.array([None, 9], pa.int64())})
    within = candidate_files(table, files.data, keys)
    assert len(within) == 2
    (rows,) = find_rows(table, files, within, keys)
    assert (rows.positions.tolist(), rows.keys.tolist()) == ([1], [0])


def test_rows_that_were_found_are_read_in_their_order(tmp_path: Path) -> None:
    """A column that came later is NULL in older files, and one that was widened has its new type."""
    old = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"]})
    table, _ = made_table(tmp_path, old)
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.add_column("w", LongType())
    table.append(pa.table({"id": [4, 5], "v": ["d", "e"], "w": [40, 50]}))
    files = files_of(table)
    keys = pa.table({"id": [5, 3, 1, 7]})
    actual = find_rows(table, files, candidate_files(table, files.data, keys), keys)
    rows = read_rows(table, actual, ["v", "w"])
    keyed = [number for rows in actual for number in rows.keys.tolist()]
    assert {number: (row["v"], row["w"]) for number, row in zip(keyed, rows.to_pylist(), strict=True)} == {
        0: ("e", 50),
        1: ("c", None),
        2: ("a", None),
    }


def test_rows_are_read_from_all_parts_of_a_large_file(tmp_path: Path) -> None:
    """A file that is read in several batches gives exactly the rows at the positions, in their order."""
    count = 3 * ROWS_PER_READ + 1
    values = pa.array(f"value-{number}" for number in range(count))
    table, files = made_table(tmp_path, pa.table({"id": pa.array(range(count)), "v": values}))
    chosen = [0, ROWS_PER_READ - 1, ROWS_PER_READ, 2 * ROWS_PER_READ + 7, count - 1]
    actual = find_rows(table, files, files.data, pa.table({"id": chosen}))
    assert [f"value-{number}" for number in chosen] == read_rows(table, actual, ["v"])["v"].to_pylist()
