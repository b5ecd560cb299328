"""All changes of a key become one net change, as if they were applied one after the other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.spark.tables.log_columns import PLAIN_WORDS
from cdc_platform.spark.tables.net_changes import (
    ACTION,
    APPEND,
    NOTHING,
    REMOVE,
    UPDATE,
    NetChangeStats,
    compute_net_changes,
    compute_net_rows,
    measure_net_changes,
)
from cdc_platform.spark.tables.typed_columns import flag_of, type_changes
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.strategies import spark_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

SCHEMA: Final = table("t", {"id": "INT64"}, {"a": "INT64", "b": "STRING(9)"})
LOG: Final = "ordinal bigint, change_kind string, keys string, new_values string, is_whole_row boolean"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class KeyChange:
    """One change of a key."""

    kind: ChangeKind
    values: Values
    is_whole: bool = True


def insert(**values: object) -> KeyChange:
    """Return an insert."""
    return KeyChange(ChangeKind.INSERT, values)


def partial(**values: object) -> KeyChange:
    """Return an update that names some columns."""
    return KeyChange(ChangeKind.UPDATE, values, is_whole=False)


def whole(**values: object) -> KeyChange:
    """Return an update that carries the whole row."""
    return KeyChange(ChangeKind.UPDATE, values)


DELETE: Final = KeyChange(ChangeKind.DELETE, {})


@dataclass(frozen=True)
class NetChange:
    """The net change of a key: the columns that some change set, with their values."""

    action: str
    values: Values


def reference(steps: Sequence[KeyChange]) -> NetChange:
    """Apply changes one after the other."""
    values: dict[str, Any] = {}
    for step in steps:
        if step.is_whole:
            values = dict.fromkeys(("a", "b"))
        values |= {
            name: int(value) if name == "a" and value is not None else value
            for name, value in step.values.items()
        }
    exists = [step.kind for step in steps if step.kind is not ChangeKind.UPDATE]
    is_inserted = steps[0].kind is ChangeKind.INSERT
    gone = bool(exists) and exists[-1] is ChangeKind.DELETE
    action = {(True, True): NOTHING, (True, False): APPEND, (False, True): REMOVE, (False, False): UPDATE}
    return NetChange(action[is_inserted, gone], values)


def log_of(spark: "SparkSession", keys: Mapping[int, Sequence[KeyChange]]) -> "DataFrame":
    """Return the log of the keys' changes; the changes of different keys alternate."""
    flat = [(position, key, step) for key, steps in keys.items() for position, step in enumerate(steps)]
    rows = [
        (ordinal, step.kind.value, json.dumps({"id": str(key)}), json.dumps(step.values), step.is_whole)
        for ordinal, (_, key, step) in enumerate(sorted(flat, key=lambda item: item[:2]))
    ]
    # The order in which rows lie in the log is not the order of the changes.
    return spark.createDataFrame(rows[::-1], LOG)


def net_changes_of(
    spark: "SparkSession", keys: Mapping[int, Sequence[KeyChange]], *, has_partial_updates: bool
) -> dict[int, NetChange]:
    """Compute net changes with Spark and return the same form as the reference."""
    log = log_of(spark, keys)
    if not has_partial_updates:
        return answers_of(compute_net_rows(log, SCHEMA, PLAIN_WORDS), has_partial_updates=False)
    typed = type_changes(log, SCHEMA, has_partial_updates=True)
    return answers_of(compute_net_changes(typed, SCHEMA), has_partial_updates=True)


def answers_of(net_changes: "DataFrame", *, has_partial_updates: bool) -> dict[int, NetChange]:
    """Return net changes in the form of the reference."""
    return {
        row["id"]: NetChange(
            row[ACTION],
            {name: row[name] for name in ("a", "b") if not has_partial_updates or row[flag_of(name)]},
        )
        for row in net_changes.collect()
    }


CASES: Final[Sequence[tuple[Sequence[KeyChange], NetChange]]] = [
    ([insert(a="1", b="x")], NetChange(APPEND, {"a": 1, "b": "x"})),
    ([insert(a="1")], NetChange(APPEND, {"a": 1, "b": None})),  # absent in an insert is NULL
    ([partial(a="1")], NetChange(UPDATE, {"a": 1})),  # absent in a partial update keeps its value
    ([partial(a=None)], NetChange(UPDATE, {"a": None})),  # an explicit NULL sets NULL
    ([partial(a="1"), partial(b="x")], NetChange(UPDATE, {"a": 1, "b": "x"})),
    ([partial(a="1"), partial(a=None)], NetChange(UPDATE, {"a": None})),  # NULL is newer
    ([partial(a=None), partial(a="2"), partial(b="y")], NetChange(UPDATE, {"a": 2, "b": "y"})),
    ([partial()], NetChange(UPDATE, {})),  # names nothing
    ([whole(a="1")], NetChange(UPDATE, {"a": 1, "b": None})),  # a whole row sets what it does not name
    ([partial(b="x"), whole(a="1")], NetChange(UPDATE, {"a": 1, "b": None})),
    ([whole(a="1", b="x"), partial(b="y")], NetChange(UPDATE, {"a": 1, "b": "y"})),
    ([DELETE], NetChange(REMOVE, {"a": None, "b": None})),
    ([partial(a="1"), DELETE], NetChange(REMOVE, {"a": None, "b": None})),
    ([insert(a="1"), DELETE], NetChange(NOTHING, {"a": None, "b": None})),  # inserted and deleted
    ([insert(a="1"), DELETE, insert(b="z")], NetChange(APPEND, {"a": None, "b": "z"})),  # inserted again
    ([DELETE, insert(b="z")], NetChange(UPDATE, {"a": None, "b": "z"})),  # replaced: nothing of before stays
    ([DELETE, insert(a="1"), partial(b="y")], NetChange(UPDATE, {"a": 1, "b": "y"})),
    ([DELETE, insert(a="1"), DELETE], NetChange(REMOVE, {"a": None, "b": None})),
    ([insert(a="1"), partial(b="y"), partial(a="2")], NetChange(APPEND, {"a": 2, "b": "y"})),
]


def test_every_case_of_partial_updates_has_the_listed_net_change(spark: "SparkSession") -> None:
    """One key a case, all in one job; the reference agrees."""
    results = net_changes_of(
        spark, {key: steps for key, (steps, _) in enumerate(CASES)}, has_partial_updates=True
    )
    for key, (steps, expected) in enumerate(CASES):
        assert expected == reference(steps) == results[key], str(steps)


def test_every_case_of_whole_rows_has_the_same_net_change_without_flags(spark: "SparkSession") -> None:
    """Where every change carries the whole row, the cheap aggregation gives what the other one gives."""
    cases = {
        key: (steps, expected)
        for key, (steps, expected) in enumerate(CASES)
        if all(step.is_whole for step in steps)
    }
    by_key = {key: steps for key, (steps, _) in cases.items()}
    expected = {key: expected for key, (_, expected) in cases.items()}
    assert expected == net_changes_of(spark, by_key, has_partial_updates=False)


def steps_of_a_key() -> st.SearchStrategy[list[KeyChange]]:
    """Changes of one key that a truthful source may send."""
    columns = {"a": st.none() | st.integers(0, 9).map(str), "b": st.none() | st.sampled_from(["", "x", "y"])}
    some = st.fixed_dictionaries({}, optional=columns)
    kinds = st.lists(st.tuples(st.sampled_from(["patch", "whole", "toggle"]), some), min_size=1, max_size=6)

    def truthful(choices: list[tuple[str, Values]], *, existed: bool) -> list[KeyChange]:
        steps: list[KeyChange] = []
        exists = existed
        for choice, values in choices:
            if not exists:
                steps.append(insert(**values))
            elif choice == "toggle":
                steps.append(DELETE)
            else:
                steps.append(partial(**values) if choice == "patch" else whole(**values))
            exists = steps[-1].kind is not ChangeKind.DELETE
        return steps

    return st.builds(lambda choices, existed: truthful(choices, existed=existed), kinds, st.booleans())


@spark_cases(5)
@given(keys=st.lists(steps_of_a_key(), min_size=100, max_size=200))
def test_net_changes_equal_applying_change_by_change(
    spark: "SparkSession", keys: list[list[KeyChange]]
) -> None:
    """Hundreds of random keys a job, each with its own changes."""
    by_key = dict(enumerate(keys))
    expected = {key: reference(steps) for key, steps in by_key.items()}
    assert expected == net_changes_of(spark, by_key, has_partial_updates=True)


def measured(spark: "SparkSession", keys: Mapping[str, str], ids: Sequence[str | None]) -> NetChangeStats:
    """Measure updates with these first keys, JSON texts or NULL."""
    schema = table("t", {**keys, "n": "INT64"}, {})
    first = next(iter(keys))
    rows = [(n, "delete", json.dumps({first: key, "n": str(n)}), "{}", True) for n, key in enumerate(ids)]
    # A key that is inserted far away from the others.
    inserted_key = {"INT64": "99", "STRING(9)": "zzz", "FLOAT64": "99"}.get(keys[first], "2999-01-01")
    rows.append((99, "insert", json.dumps({first: inserted_key, "n": "99"}), "{}", True))
    return measure_net_changes(
        compute_net_rows(spark.createDataFrame(rows, LOG), schema, PLAIN_WORDS), schema
    )


@pytest.mark.parametrize(
    ("type_text", "ids", "low", "high"),
    [
        ("INT64", ["10", "9", "-3"], "-3L", "10L"),  # numbers, not texts
        ("INT64", [str(-(2**63)), str(2**63 - 1)], f"{-(2**63)}L", f"{2**63 - 1}L"),
        ("STRING(9)", ["it's", "a\\b"], "'a\\\\b'", "'it\\'s'"),  # quotes and backslashes
        ("DATE", ["2024-02-29", "1999-01-01"], "DATE '1999-01-01'", "DATE '2024-02-29'"),
        (
            "TIMESTAMP",
            ["2024-02-29T01:02:03.5Z"],
            "TIMESTAMP '2024-02-29 01:02:03.5'",
            "TIMESTAMP '2024-02-29 01:02:03.5'",
        ),
        ("FLOAT64", ["1.5"], None, None),  # no literal that says exactly this
        ("INT64", ["5", None], None, None),  # NULL lies in no interval
    ],
)
def test_bounds_of_keys_are_literals(
    spark: "SparkSession", type_text: str, ids: list[str | None], low: str | None, high: str | None
) -> None:
    """Only keys that must exist count: appended ones need no look into the table."""
    stats = measured(spark, {"id": type_text}, ids)
    assert (low, high) == (stats.low_inclusive, stats.high_inclusive)
    assert stats.existing == stats.deleted == len(ids)
    assert (stats.appended, stats.has_null_keys) == (1, None in ids)


def test_columns_that_all_net_changes_name_are_measured(spark: "SparkSession") -> None:
    """Several changes of a key name a column together, and an explicit NULL names it."""
    keys = {1: [partial(a="1"), partial(b="x")], 2: [partial(a=None)], 3: [insert(a="1")], 4: [DELETE]}
    net_changes = compute_net_changes(
        type_changes(log_of(spark, keys), SCHEMA, has_partial_updates=True), SCHEMA
    )
    assert {"a"} == measure_net_changes(net_changes, SCHEMA, has_partial_updates=True).named_columns
    assert not measure_net_changes(net_changes, SCHEMA).named_columns
