"""Values that the source did not send are found where they were seen last, and nowhere else."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, settings

from cdc_platform.model.rows.resolution import (
    Origin,
    Resolution,
    RowChange,
    RowId,
    Unresolved,
    Values,
    needed_rows,
    resolve,
)
from cdc_platform.model.stream.records import ModType
from cdc_platform_tests.support.played_rows import LARGE, SIZES, STEPS, TABLE, Database, change, key, play


def values_of(result: Resolution) -> list[Values | None]:
    """Return the values of all changes."""
    return [change.new_values for change in result.changes]


def test_the_stored_row_has_what_an_update_lacks() -> None:
    """An update that leaves the large value alone gets it from the table."""
    result = resolve(
        [change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",))], {(TABLE, key(1)): {"a": 1, "big": "x"}}
    )
    expected = [{"a": 2, "big": "x"}]
    assert expected == values_of(result)
    assert result.origins[Origin.STORED] == sum(result.origins.values())


def test_the_batch_knows_better_than_the_table() -> None:
    """The last value before the update counts, column by column, not the last event, nor the stored row."""
    changes = [
        change(ModType.UPDATE, 1, {"a": 1, "big": "new"}),
        change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",)),
        change(ModType.UPDATE, 1, {"a": 3}, unavailable=("big",)),
    ]
    result = resolve(changes, {(TABLE, key(1)): {"a": 0, "big": "old"}})
    expected = {"a": 3, "big": "new"}
    assert expected == values_of(result)[-1]


def test_null_is_a_value() -> None:
    """A value that was set to NULL stays NULL."""
    changes = [
        change(ModType.UPDATE, 1, {"big": None}),
        change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",)),
    ]
    result = resolve(changes, {(TABLE, key(1)): {"big": "old"}})
    expected = {"a": 2, "big": None}
    assert expected == values_of(result)[-1]


def test_a_row_that_moves_onto_a_freed_key_brings_its_own_value() -> None:
    """The row that was deleted under the key leaves nothing to the row that gets the key."""
    changes = [
        change(ModType.DELETE, 5001),
        change(ModType.DELETE, 5002, may_move=True),
        change(ModType.INSERT, 5001, {"a": 1}, unavailable=("big",), previous_key=key(5002)),
    ]
    stored = {(TABLE, key(5001)): {"big": "victim's"}, (TABLE, key(5002)): {"big": "mover's"}}
    result = resolve(changes, stored)
    expected = {"a": 1, "big": "mover's"}
    assert expected == values_of(result)[-1]
    assert not result.departed


def test_the_halves_of_a_key_change_may_be_in_two_batches() -> None:
    """The first batch hands the row's last values on, and the second one finds them."""
    first = resolve([change(ModType.DELETE, 1, may_move=True)], {(TABLE, key(1)): {"big": "x"}})
    second = resolve(
        [change(ModType.INSERT, 2, {"a": 1}, unavailable=("big",), previous_key=key(1))],
        {(TABLE, key(1)): None},
        first.departed,
    )
    expected = [{"a": 1, "big": "x"}]
    assert expected == values_of(second)
    assert not second.departed


def test_a_reinserted_row_has_nothing_of_the_one_before() -> None:
    """After a delete and a truncate, nothing of the stored row is left."""
    late = change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",))
    stored = {(TABLE, key(1)): {"big": "dead"}}
    for ending in (change(ModType.DELETE, 1), RowChange(TABLE, "{}", ModType.TRUNCATE)):
        result = resolve([ending, late], stored)
        assert (Unresolved(1, TABLE, key(1), ("big",)),) == result.unresolved


def test_what_nobody_knows_is_unresolved_until_it_comes() -> None:
    """A row that was never seen has no value, neither NULL nor a marker, until an event brings one."""
    changes = [
        change(ModType.UPDATE, 1, {"a": 1}, unavailable=("big",)),
        change(ModType.UPDATE, 1, {"a": 2, "big": "healed"}),
        change(ModType.UPDATE, 1, {"a": 3}, unavailable=("big",)),
    ]
    result = resolve(changes, {})
    expected = [{"a": 1}, {"a": 2, "big": "healed"}, {"a": 3, "big": "healed"}]
    assert expected == values_of(result)
    assert Unresolved(0, TABLE, key(1), ("big",)) == result.unresolved[0]
    assert result.unresolved[0].columns == result.changes[0].unavailable


def test_a_partial_update_leaves_the_other_columns_as_they_were() -> None:
    """After a change of some columns, the others are still found."""
    changes = [
        change(ModType.UPDATE, 1, {"a": 1}, is_whole_row=False),
        change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",)),
    ]
    expected = {"a": 2, "big": "x"}
    assert expected == values_of(resolve(changes, {(TABLE, key(1)): {"big": "x"}}))[-1]


def fold(table: dict[RowId, Values], change: RowChange) -> None:
    """Apply a change to a table."""
    if change.mod_type is ModType.TRUNCATE:
        table.clear()
    elif change.mod_type is ModType.DELETE:
        table.pop(change.row_id, None)
    else:
        table[change.row_id] = dict(change.new_values or {})


def read_in_batches(database: Database, sizes: Sequence[int], table: dict[RowId, Values]) -> list[RowChange]:
    """Return all changes, resolved in batches of the sizes; only rows said to be needed are looked up."""
    changes: list[RowChange] = []
    departed: Mapping[RowId, Values] = {}
    while len(changes) < len(database.changes):
        size = sizes[len(changes) % len(sizes)]
        batch = database.changes[len(changes) : len(changes) + size]
        result = resolve(batch, {row: table.get(row) for row in needed_rows(batch)}, departed)
        departed = result.departed
        for resolved in result.changes:
            fold(table, resolved)
        changes += result.changes
    return changes


@settings(max_examples=200, deadline=None)
@given(STEPS, SIZES)
def test_any_history_in_any_batches_is_the_truth(steps: list[tuple[Any, ...]], sizes: list[int]) -> None:
    """Whatever happens to keys, every change is whole again, and the table is the source's."""
    database, table = play(steps, {}), dict[RowId, Values]()
    changes = read_in_batches(database, sizes, table)
    assert database.truths == [resolved.new_values for resolved in changes]
    assert not any(resolved.unavailable for resolved in changes)
    assert {(TABLE, key(number)): row for number, row in database.rows.items()} == table


@settings(max_examples=100, deadline=None)
@given(STEPS, SIZES)
def test_a_history_without_its_beginning_is_never_wrong(
    steps: list[tuple[Any, ...]], sizes: list[int]
) -> None:
    """Rows that were there before are known in part: what is told is true, and the rest is unresolved."""
    database = play(steps, {number: {"a": 0, "big": LARGE[0]} for number in (1, 2)})
    for resolved, truth in zip(read_in_batches(database, sizes, {}), database.truths, strict=True):
        values = {**(resolved.new_values or {})}
        assert values == {name: value for name, value in (truth or {}).items() if name in values}
        assert set(truth or {}) == {*values, *resolved.unavailable}
