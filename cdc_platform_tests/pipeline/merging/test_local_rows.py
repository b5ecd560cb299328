"""Rows after local net changes are those of Spark's MERGE, for any net changes and rows."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.schema.table_options import ORDERING_KEY, TableOptions, stored_schema
from cdc_platform.pipeline.merging.local_rows import (
    LocalNetChanges,
    inserted_rows,
    is_newer,
    matching,
    new_rows,
)
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, NOTHING, REMOVE, UPDATE
from cdc_platform.spark.tables.typed_columns import flag_of
from cdc_platform_tests.example_tables import table

Row = dict[str, Any]
SCHEMA: Final = table("t", {"id": "INT64"}, {"a": "INT64", "tags": "ARRAY<STRING(9)>"})
TYPES: Final = {"id": pa.int64(), "a": pa.int64(), "tags": pa.list_(pa.string()), ORDERING_KEY: pa.string()}
ORDERED: Final = stored_schema(SCHEMA, TableOptions(keeps_order=True))


@st.composite
def changed_rows(draw: st.DrawFn) -> tuple[list[Row], list[Row], bool, bool]:
    """Return rows of a table, the net changes of some keys, whether they name columns, and keep order."""
    has_partial_updates, keeps = draw(st.booleans()), draw(st.booleans())
    values = {
        "a": st.none() | st.integers(0, 9),
        "tags": st.none() | st.lists(st.sampled_from("xy"), max_size=2),
    }
    if keeps:
        values[ORDERING_KEY] = st.sampled_from(["1", "2", "3"])
    row = st.fixed_dictionaries(values)
    ids = st.lists(st.integers(0, 6), max_size=6, unique=True)
    stored = [{"id": id_, **draw(row)} for id_ in draw(ids)]
    flags = st.none() | st.booleans()
    net_changes = []
    for id_ in draw(ids):
        change = {"id": id_, **draw(row), ACTION: draw(st.sampled_from([APPEND, UPDATE, REMOVE, NOTHING]))}
        if has_partial_updates:
            change |= {flag_of(name): draw(flags) for name in values if name != ORDERING_KEY}
            change |= {flag_of(ORDERING_KEY): True} if keeps else {}
        net_changes.append(change)
    return stored, net_changes, has_partial_updates, keeps


def merged(
    stored: list[Row], net_changes: list[Row], *, has_partial_updates: bool, keeps: bool
) -> dict[int, Row]:
    """Return the rows after the statement of `merge_everything`, one by one."""
    rows = {row["id"]: dict(row) for row in stored}
    for change in net_changes:
        action = REMOVE if change[ACTION] == NOTHING else change[ACTION]
        old = rows.get(change["id"])
        values = {name: change[name] for name in change if name in TYPES}
        if old is None:
            if action != REMOVE:
                rows[change["id"]] = values
            continue
        if keeps:
            new_key, old_key = change[ORDERING_KEY], old[ORDERING_KEY]
            if new_key < old_key or (new_key == old_key and not has_partial_updates):
                continue
        if action == REMOVE:
            del rows[change["id"]]
        elif has_partial_updates:
            old |= {name: value for name, value in values.items() if name == "id" or change[flag_of(name)]}
        else:
            rows[change["id"]] = values
    return rows


def as_arrow(rows: list[Row], names: list[str]) -> pa.Table:
    """Return rows as two batches, as they come from files."""
    types = {name: TYPES.get(name, pa.string() if name == ACTION else pa.bool_()) for name in names}
    schema = pa.schema(list(types.items()))
    half = len(rows) // 2
    return pa.concat_tables(pa.Table.from_pylist(part, schema) for part in (rows[:half], rows[half:]))


@given(drawn=changed_rows())
def test_rows_become_what_the_statement_says(drawn: tuple[list[Row], list[Row], bool, bool]) -> None:
    """Whole rows and partial updates, late and new ones, of keys that the table has or not.

    Columns that every net change names are not read from the table.
    """
    stored, changes, has_partial_updates, keeps = drawn
    schema = ORDERED if keeps else SCHEMA
    columns = [column.name for column in schema.columns]
    flags = [flag_of(column.name) for column in schema.value_columns] if has_partial_updates else []
    net_changes = LocalNetChanges(
        as_arrow(changes, [*columns, *flags, ACTION]), schema, has_partial_updates, trusts_inserts=False
    )
    ids = net_changes.touched["id"].to_pylist()
    hit = [row for row in stored if row["id"] in ids]
    keys = np.array([ids.index(row["id"]) for row in hit], dtype=np.int64)
    matched, old = matching(net_changes, keys), as_arrow(hit, columns).select(net_changes.read_columns)
    newer = pa.array(is_newer(net_changes, matched, old))
    became = new_rows(net_changes, matched.filter(newer), old.filter(newer)).to_pylist()
    gone = {row["id"] for row, is_gone in zip(hit, newer.to_pylist(), strict=True) if is_gone}
    left = [row for row in stored if row["id"] not in gone]
    rows_after = [*left, *became, *inserted_rows(net_changes, keys).to_pylist()]

    expected = merged(stored, changes, has_partial_updates=has_partial_updates, keeps=keeps)
    assert expected == {row["id"]: row for row in rows_after}
    assert len(expected) == len(rows_after)


@given(drawn=changed_rows())
def test_a_source_that_is_believed_names_what_is_looked_for(
    drawn: tuple[list[Row], list[Row], bool, bool],
) -> None:
    """Keys that it calls inserted are new, and those that were inserted and deleted again are nowhere."""
    _, changes, _, _ = drawn
    net_changes = LocalNetChanges(
        as_arrow(changes, ["id", "a", "tags", ACTION]), SCHEMA, has_partial_updates=False, trusts_inserts=True
    )
    acting = {change["id"] for change in changes if change[ACTION] in {UPDATE, REMOVE}}
    inserted = {change["id"] for change in changes if change[ACTION] == APPEND}
    assert acting == set(net_changes.touched["id"].to_pylist())
    assert inserted == set(inserted_rows(net_changes, np.arange(len(acting)))["id"].to_pylist())


def test_only_columns_that_some_update_leaves_out_are_read() -> None:
    """A column is read for the values that rows keep, and for nothing else."""
    changes = [
        {"id": 1, "a": 1, "tags": None, flag_of("a"): True, flag_of("tags"): True, ACTION: UPDATE},
        {"id": 2, "a": 1, "tags": None, flag_of("a"): True, flag_of("tags"): None, ACTION: UPDATE},
    ]
    names = list(changes[0])

    def read_of(rows: list[Row]) -> list[str]:
        net_changes = LocalNetChanges(as_arrow(rows, names), SCHEMA, True, trusts_inserts=True)
        return list(net_changes.read_columns)

    assert read_of(changes[:1]) == []
    assert read_of(changes) == ["tags"]
