"""The records that represent all shapes that a table's records have in a cycle."""

from collections.abc import Sequence
from itertools import groupby
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.schemas import TIMESTAMP
from cdc_platform.pipeline.reading.window_content import SHAPE, ShapeFacts, ShapeKey
from cdc_platform.pipeline.schema.shape_runs import ShapeRuns

SCHEMA = pa.schema([("record_timestamp", TIMESTAMP), *((name, pa.string()) for name in SHAPE)])
SHAPES = st.builds(
    lambda table, kind, columns: (table, kind, "NEW_ROW", columns),
    st.sampled_from("ab"),
    st.sampled_from(["INSERT", "UPDATE"]),
    st.sampled_from(["[]", "[1]", None]),
)


def ends_one_by_one(records: Sequence[tuple[int, ShapeKey]]) -> list[tuple[ShapeKey, int]]:
    """Return the first and the last record of each shape in each run of a table's columns, in their order."""
    ends: list[tuple[ShapeKey, int]] = []
    for table in sorted({key[0] or "" for _, key in records}, key=[key[0] for _, key in records].index):
        own = sorted((record for record in records if record[1][0] == table), key=lambda record: record[0])
        for _, run in groupby(own, key=lambda record: record[1][3]):
            members = list(run)
            first = {key: micros for micros, key in reversed(members)}
            last = {key: micros for micros, key in members}
            ends += [(key, micros) for micros, key in members if micros in (first[key], last[key])]
    return ends


@given(st.lists(SHAPES, max_size=40), st.randoms(use_true_random=False))
def test_the_ends_of_each_run_stay(shapes: list[ShapeKey], dice: Random) -> None:
    """For any order of the records, the first and last of each shape stay, until columns change."""
    records = list(enumerate(shapes))
    dice.shuffle(records)
    runs = ShapeRuns()
    for begin in range(0, len(records), 7):
        rows = [(micros, *key) for micros, key in records[begin : begin + 7]]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        runs.add(pa.table(arrays, SCHEMA))

    def counts(key: ShapeKey) -> bool:
        return key[3] is not None

    counted = [record for record in records if counts(record[1])]
    assert sorted(ends_one_by_one(counted)) == sorted(runs.ends(counts))
    by_table = groupby(runs.ends(counts), key=lambda end: end[0][0])
    assert all(
        moments == sorted(moments) for moments in ([micros for _, micros in ends] for _, ends in by_table)
    )


@given(st.lists(SHAPES, max_size=20), st.integers(1, 20))
def test_shapes_of_one_moment_come_in_their_order(shapes: list[ShapeKey], size: int) -> None:
    """Events of a cycle share their moment: the order of the source counts, or else that of arrival."""
    runs = ShapeRuns()
    for begin in range(0, len(shapes), size):
        rows = [dict(zip(SHAPE, key, strict=True)) | {"record_timestamp": 5} for key in shapes[begin:][:size]]
        runs.add(pa.Table.from_pylist(rows, SCHEMA))
    arrived = {table: [key for key in dict.fromkeys(shapes) if key[0] == table] for table in "ab"}
    ends = [key for key, _ in runs.ends(lambda _: True)]
    assert arrived == {table: [*dict.fromkeys(key for key in ends if key[0] == table)] for table in "ab"}
    in_order = [key for key, _ in runs.ends(lambda _: True, lambda key: key[3] or "")]
    expected = {table: sorted(keys, key=lambda key: key[3] or "") for table, keys in arrived.items()}
    assert expected == {table: [*dict.fromkeys(key for key in in_order if key[0] == table)] for table in "ab"}


@given(st.lists(st.tuples(SHAPES, st.integers(1, 3)), max_size=20), st.booleans())
def test_facts_about_shapes_show_the_same_ends(records: list[tuple[ShapeKey, int]], has_order: bool) -> None:
    """Without a look at the records, if they show any."""
    runs, by_facts, shapes = ShapeRuns(), ShapeRuns(), dict[ShapeKey, ShapeFacts]()
    for key, micros in records:
        rows = [dict(zip(SHAPE, key, strict=True)) | {"record_timestamp": micros}]
        runs.add(pa.Table.from_pylist(rows, SCHEMA))
        # Ordering keys that agree with the moments
        facts = ShapeFacts(1, micros, micros, f"{micros} {key[3]}" if has_order else "")
        shapes[key] = facts.plus(shapes[key]) if key in shapes else facts

    def order_of(key: ShapeKey) -> str:
        return shapes[key].first_order

    if by_facts.add_facts(shapes):
        assert {*runs.ends(lambda _: True, order_of)} == {*by_facts.ends(lambda _: True, order_of)}
    else:
        assert len({key[3] for key, _ in records}) > 1
