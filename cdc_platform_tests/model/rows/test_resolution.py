"""Values that the source did not send are found where they were seen last, and nowhere else."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings

from cdc_platform.model.rows.resolution import RowChange, RowId, Values, key_chains_of
from cdc_platform.model.stream.records import ModType
from cdc_platform_tests.support.reference.played_rows import (
    LARGE,
    SIZES,
    STEPS,
    TABLE,
    Database,
    change,
    key,
    play,
)
from cdc_platform_tests.support.reference.resolved_rows import resolve


def values_of(changes: Sequence[RowChange]) -> list[Values | None]:
    """Return the values of all changes."""
    return [change.new_values for change in changes]


def test_the_stored_row_has_what_an_update_lacks() -> None:
    """An update that leaves the large value alone gets it from the table."""
    changes = resolve(
        [change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",))], {(TABLE, key(1)): {"a": 1, "big": "x"}}
    )
    expected = [{"a": 2, "big": "x"}]
    assert expected == values_of(changes)


def test_the_batch_knows_better_than_the_table() -> None:
    """The last value before the update counts, column by column, not the last event, nor the stored row."""
    changes = [
        change(ModType.UPDATE, 1, {"a": 1, "big": "new"}),
        change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",)),
        change(ModType.UPDATE, 1, {"a": 3}, unavailable=("big",)),
    ]
    expected = {"a": 3, "big": "new"}
    assert expected == values_of(resolve(changes, {(TABLE, key(1)): {"a": 0, "big": "old"}}))[-1]


def test_null_is_a_value() -> None:
    """A value that was set to NULL stays NULL."""
    changes = [
        change(ModType.UPDATE, 1, {"big": None}),
        change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",)),
    ]
    expected = {"a": 2, "big": None}
    assert expected == values_of(resolve(changes, {(TABLE, key(1)): {"big": "old"}}))[-1]


def test_a_row_that_moves_onto_a_freed_key_brings_its_own_value() -> None:
    """The row that was deleted under the key leaves nothing to the row that gets the key."""
    changes = [
        change(ModType.DELETE, 5001),
        change(ModType.DELETE, 5002),
        change(ModType.INSERT, 5001, {"a": 1}, unavailable=("big",), previous_key=key(5002)),
    ]
    stored = {(TABLE, key(5001)): {"big": "victim's"}, (TABLE, key(5002)): {"big": "mover's"}}
    expected = {"a": 1, "big": "mover's"}
    assert expected == values_of(resolve(changes, stored))[-1]


def test_a_row_that_moves_is_the_one_that_has_the_key() -> None:
    """Where the half that leaves the key comes later, a row that had the key before gives nothing."""
    changes = [
        change(ModType.DELETE, 1),
        change(ModType.INSERT, 1, {"a": 1, "big": "new"}),
        change(ModType.INSERT, 2, {"a": 2}, unavailable=("big",), previous_key=key(1)),
    ]
    expected = {"a": 2, "big": "new"}
    assert expected == values_of(resolve(changes, {(TABLE, key(1)): {"big": "dead"}}))[-1]


def test_the_halves_of_a_key_change_may_be_in_two_batches() -> None:
    """No table has the row any more when the second half comes, and the log has its last values."""
    insert = change(ModType.INSERT, 1, {"a": 0, "big": "x"})
    first = resolve([change(ModType.DELETE, 1)], {(TABLE, key(1)): {"a": 0, "big": "x"}}, [insert])
    second = resolve(
        [change(ModType.INSERT, 2, {"a": 1}, unavailable=("big",), previous_key=key(1))],
        {(TABLE, key(1)): None},
        [insert, *first],
    )
    expected = [{"a": 1, "big": "x"}]
    assert expected == values_of(second)


def test_a_reinserted_row_has_nothing_of_the_one_before() -> None:
    """After a delete and a truncate, nothing of the stored row is left."""
    late = change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",))
    stored = {(TABLE, key(1)): {"big": "dead"}}
    for ending in (change(ModType.DELETE, 1), RowChange(TABLE, "{}", ModType.TRUNCATE)):
        assert late == resolve([ending, late], stored)[-1]


def test_what_nobody_knows_is_unresolved_until_it_comes() -> None:
    """A row that was never seen has no value, neither NULL nor a marker, until an event brings one."""
    changes = resolve(
        [
            change(ModType.UPDATE, 1, {"a": 1}, unavailable=("big",)),
            change(ModType.UPDATE, 1, {"a": 2, "big": "healed"}),
            change(ModType.UPDATE, 1, {"a": 3}, unavailable=("big",)),
        ],
        {},
    )
    expected = [{"a": 1}, {"a": 2, "big": "healed"}, {"a": 3, "big": "healed"}]
    assert expected == values_of(changes)
    assert [change.unavailable for change in changes] == [("big",), (), ()]


def test_a_partial_update_leaves_the_other_columns_as_they_were() -> None:
    """After a change of some columns, the others are still found."""
    changes = [
        change(ModType.UPDATE, 1, {"a": 1}, is_whole_row=False),
        change(ModType.UPDATE, 1, {"a": 2}, unavailable=("big",)),
    ]
    expected = {"a": 2, "big": "x"}
    assert expected == values_of(resolve(changes, {(TABLE, key(1)): {"big": "x"}}))[-1]


def apply_change(table: dict[RowId, Values], change: RowChange) -> None:
    """Apply a change to a table."""
    if change.mod_type is ModType.TRUNCATE:
        table.clear()
    elif change.mod_type is ModType.DELETE:
        table.pop(change.row_id, None)
    else:
        table[change.row_id] = dict(change.new_values or {})


def read_in_batches(database: Database, sizes: Sequence[int], table: dict[RowId, Values]) -> list[RowChange]:
    """Return all changes, resolved in batches of the sizes."""
    changes: list[RowChange] = []
    while len(changes) < len(database.changes):
        size = sizes[len(changes) % len(sizes)]
        batch = database.changes[len(changes) : len(changes) + size]
        changes += resolve(batch, dict(table), changes)
        for resolved in changes[-len(batch) :]:
            apply_change(table, resolved)
    return changes


@settings(max_examples=200, deadline=None)
@given(STEPS, SIZES)
def test_any_history_in_any_batches_is_the_truth(steps: list[tuple[Any, ...]], sizes: list[int]) -> None:
    """For any sequence of key changes, every change is complete, and the table is the source's."""
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
    """Older rows are known in part: what is known is true, and the rest is unresolved."""
    database = play(steps, {number: {"a": 0, "big": LARGE[0]} for number in (1, 2)})
    for resolved, truth in zip(read_in_batches(database, sizes, {}), database.truths, strict=True):
        values = {**(resolved.new_values or {})}
        assert values == {name: value for name, value in (truth or {}).items() if name in values}
        assert set(truth or {}) == {*values, *resolved.unavailable}


def row(key: int) -> RowId:
    """Return a row of a table."""
    return "public.items", str(key)


def test_a_chain_is_found_whole() -> None:
    """In any direction of a key change, the rows before and after it belong together; others do not."""
    links = [(row(2), row(1)), (row(3), row(2)), (row(9), row(8))]
    for start in (1, 2, 3):
        assert {row(1), row(2), row(3)} == key_chains_of({row(start)}, links).keys()
    assert {row(5)} == key_chains_of({row(5)}, links).keys()


def test_a_ring_ends() -> None:
    """A swap of keys connects two rows with each other."""
    assert {row(1), row(2)} == key_chains_of({row(1)}, [(row(1), row(2)), (row(2), row(1))]).keys()
