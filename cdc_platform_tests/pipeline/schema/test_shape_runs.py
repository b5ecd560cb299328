"""The records that represent all shapes that a table's records have in a cycle."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from random import Random
from typing import Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.schemas import TIMESTAMP
from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.pipeline.reading.window_content import SHAPE, ShapeFacts, ShapeKey
from cdc_platform.pipeline.schema.shape_runs import ORDER, ShapeRuns, show_all_runs

PLACES: Final = pa.schema([("record_timestamp", TIMESTAMP), (ORDER, pa.string())])
SHAPES = st.builds(
    lambda table, kind, columns: (table, kind, "NEW_ROW", columns),
    st.sampled_from("ab"),
    st.sampled_from(["INSERT", "UPDATE"]),
    st.sampled_from(["[]", "[1]", None]),
)
Record = tuple[OrderPlace, ShapeKey]
TYPES: Final = ({"v": "INT64"}, {"v": "STRING"}, {"w": "INT64"}, {"v": "INT64", "w": "INT64"})
"""Types of the columns of a record: records may lack columns, as deletions do, or have other types."""


def rows_at(records: Sequence[Record], *, has_order: bool = False) -> pa.Table:
    """Return records as a batch."""
    rows = [
        dict(zip(SHAPE, key, strict=True)) | {"record_timestamp": micros, ORDER: order}
        for (micros, order), key in records
    ]
    batch = pa.Table.from_pylist(rows, pa.schema([*PLACES, *((name, pa.string()) for name in SHAPE)]))
    return batch if has_order else batch.drop_columns(ORDER)


def ends_one_by_one(records: Sequence[Record]) -> list[tuple[ShapeKey, OrderPlace]]:
    """Return the first and the last record of each shape in each run of a table's columns, in their order."""
    ends: list[tuple[ShapeKey, OrderPlace]] = []
    for table in sorted({key[0] or "" for _, key in records}, key=[key[0] for _, key in records].index):
        own = sorted((record for record in records if record[1][0] == table), key=lambda record: record[0])
        for _, run in groupby(own, key=lambda record: record[1][3]):
            members = list(run)
            first = {key: place for place, key in reversed(members)}
            last = {key: place for place, key in members}
            ends += [(key, place) for place, key in members if place in (first[key], last[key])]
    return ends


@given(st.lists(SHAPES, max_size=40), st.booleans(), st.randoms(use_true_random=False))
def test_the_ends_of_each_run_stay(shapes: list[ShapeKey], has_order: bool, dice: Random) -> None:
    """For any order of the records, the first and last of each shape stay, until columns change."""
    records: list[Record] = [((5, f"{n:02}") if has_order else (n, ""), key) for n, key in enumerate(shapes)]
    dice.shuffle(records)
    runs = ShapeRuns()
    for begin in range(0, len(records), 7):
        runs.add(rows_at(records[begin : begin + 7], has_order=has_order))

    def counts(key: ShapeKey) -> bool:
        return key[3] is not None

    counted = [record for record in records if counts(record[1])]
    assert sorted(ends_one_by_one(counted)) == sorted(runs.ends(counts))
    by_table = groupby(runs.ends(counts), key=lambda end: end[0][0])
    assert all(places == sorted(places) for places in ([place for _, place in ends] for _, ends in by_table))


@given(st.lists(SHAPES, max_size=20), st.integers(1, 20))
def test_shapes_of_one_place_come_in_order_of_arrival(shapes: list[ShapeKey], size: int) -> None:
    """Records that the source does not order come as they were read."""
    runs = ShapeRuns()
    for begin in range(0, len(shapes), size):
        runs.add(rows_at([((5, ""), key) for key in shapes[begin:][:size]]))
    arrived = {table: [key for key in dict.fromkeys(shapes) if key[0] == table] for table in "ab"}
    ends = [key for key, _ in runs.ends(lambda _: True)]
    assert arrived == {table: [*dict.fromkeys(key for key in ends if key[0] == table)] for table in "ab"}


def shape_of(types: Mapping[str, str]) -> ShapeKey:
    """Return the shape of records with columns of these types."""
    return ("t", "INSERT", None, repr(types))


def columns_of(types: Mapping[str, str]) -> dict[str, ObservedColumn]:
    """Return the same columns as an observation."""
    return {name: ObservedColumn(ColumnType(code), False, 1) for name, code in types.items()}


def changes_of(runs: ShapeRuns, types_of: Mapping[ShapeKey, Mapping[str, str]]) -> list[tuple[object, ...]]:
    """Return each place at which a column comes up or has another type than before."""
    changes: list[tuple[object, ...]] = []
    present: dict[str, str] = {}
    for key, place in runs.ends(lambda _: True):
        for name, code in types_of[key].items():
            if present.get(name) != code:
                changes.append((place, name, code))
                present[name] = code
    return sorted(changes, key=repr)


@given(st.lists(st.integers(0, len(TYPES) - 1), max_size=12), st.integers(1, 12), st.booleans())
def test_facts_about_shapes_show_the_same_changes(
    numbers: list[int], per_moment: int, comes_in_order: bool
) -> None:
    """Facts about all records of a shape suffice unless a column has a type again after another one."""
    types_of = {shape_of(types): types for types in TYPES}
    runs, by_facts, facts_of = ShapeRuns(), ShapeRuns(), dict[ShapeKey, ShapeFacts]()
    for n, number in enumerate(numbers):
        key, micros, order = shape_of(TYPES[number]), n // per_moment, f"{n:02}"
        runs.add(rows_at([((micros, order), key)], has_order=True))
        facts = ShapeFacts(1, micros, micros, order, order)
        facts_of[key] = facts.plus(facts_of[key]) if key in facts_of else facts
    shapes = [(columns_of(types_of[key]), facts) for key, facts in facts_of.items()]
    if not shapes or not show_all_runs(shapes, comes_in_order=comes_in_order):
        assert not shapes or len(facts_of) > 1
    elif comes_in_order:
        by_facts.add_facts(facts_of)
        assert changes_of(runs, types_of) == changes_of(by_facts, types_of)
