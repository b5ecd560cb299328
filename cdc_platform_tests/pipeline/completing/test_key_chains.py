"""Key chains that are completed one by one come out as the whole batch does."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.rows.resolution import RowChange, RowId, Values, key_chains_of
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.completing.key_chains import (
    CHANGE_COLUMNS,
    KEY_CHAIN,
    LINE,
    LINE_ORDER,
    LOGGED_MICROS,
    REST,
    SOURCE_PLACE,
    STORED,
    STORED_PLACE,
    UNKNOWN,
    UNKNOWN_PLACE,
    ChainCompleter,
)
from cdc_platform_tests.strategies import share_of_profile
from cdc_platform_tests.support.reference.played_rows import LARGE, SIZES, STEPS, TABLE, key, play
from cdc_platform_tests.support.reference.resolved_rows import resolve

Line = dict[str, Any]
Completed = tuple[int, Values, list[str] | None, bool, str]

LINES: Final = pa.schema(
    [
        (KEY_CHAIN, pa.string()),
        (SOURCE_PLACE, pa.string()),
        (LOGGED_MICROS, pa.int64()),
        ("table_name", pa.string()),
        ("keys", pa.string()),
        ("previous_keys", pa.string()),
        ("ordinal", pa.int64()),
        ("change_kind", pa.string()),
        ("new_values", pa.string()),
        ("unavailable_columns", pa.list_(pa.string())),
        ("is_whole_row", pa.bool_()),
        (REST, pa.struct([("ordering_key", pa.string())])),
    ]
)
STORED_ROWS: Final = st.dictionaries(
    st.integers(1, 4), st.sampled_from([*LARGE, "short", None, ...]), max_size=4
)
"""Rows of the table; an ellipsis stands for an unknown value."""
LOST: Final = st.sets(st.sampled_from([ModType.INSERT, ModType.SNAPSHOT, ModType.DELETE]))


def line_of(ordinal: int, change: RowChange, *, names_all: bool) -> Line:
    """Return a change as the workers are given it; ``names_all``: unavailable columns are named with null."""
    nulls = dict.fromkeys(change.unavailable) if names_all else {}
    values = None if change.new_values is None else json.dumps({**change.new_values, **nulls})
    rest = {"ordering_key": f"place {ordinal}"} if change.unavailable else None
    place = (change.table, change.key, change.previous_key, ordinal)
    values_of_line = (change.key, "", None, *place, change.mod_type.lower(), values, list(change.unavailable))
    return {
        **dict(zip(LINE, values_of_line, strict=False)),
        "is_whole_row": not change.unavailable,
        REST: rest,
    }


def stored_lines(stored: Mapping[int, Any]) -> Iterator[Line]:
    """Yield what the workers receive about the table's rows."""
    for number, big in stored.items():
        row = {"table_name": TABLE, "keys": key(number), KEY_CHAIN: key(number), SOURCE_PLACE: ""}
        values = json.dumps({"a": 0, "big": None if big is ... else big})
        yield {**row, "ordinal": STORED_PLACE, "change_kind": STORED, "new_values": values}
        if big is ...:
            unknown = {"change_kind": UNKNOWN, "unavailable_columns": ["big"]}
            yield {**row, "ordinal": UNKNOWN_PLACE, **unknown}


def with_chains(lines: Sequence[Line]) -> list[Line]:
    """Return lines with the key chains of rows that are connected by changes of keys."""
    links = [
        ((TABLE, line["keys"]), (TABLE, line["previous_keys"])) for line in lines if line.get("previous_keys")
    ]
    chains = key_chains_of({row_id for link in links for row_id in link}, links)
    return [{**line, KEY_CHAIN: chains.get((TABLE, line["keys"]), line[KEY_CHAIN])} for line in lines]


def completed(lines: Sequence[Line], truncates: Sequence[int], max_rows: int) -> list[Completed]:
    """Return the completed changes by ordinal, of lines that come in batches of so many at most."""
    table = pa.Table.from_pylist(lines, LINES)
    by_chain = table.sort_by([(name, "ascending") for name in LINE_ORDER])
    batches = by_chain.to_batches(max_chunksize=max_rows)
    chains = ChainCompleter((*CHANGE_COLUMNS, "ordering_key"), {TABLE: truncates}, {})
    rows = [row for batch in chains(batches) for row in batch.to_pylist()]
    lines_completed = [
        (
            row["ordinal"],
            json.loads(row["new_values"]),
            row["unavailable_columns"],
            row["is_whole_row"],
            row["ordering_key"],
        )
        for row in rows
    ]
    return sorted(lines_completed, key=lambda row: row[0])


def expected_of(
    changes: Sequence[RowChange], stored: Mapping[int, Any], *, names_all: bool
) -> list[Completed]:
    """Return the same as the whole batch has it."""
    rows: dict[RowId, Values] = {
        (TABLE, key(number)): {"a": 0} if big is ... else {"a": 0, "big": big}
        for number, big in stored.items()
    }
    return [
        (
            ordinal,
            {**(done.new_values or {}), **(dict.fromkeys(done.unavailable) if names_all else {})},
            list(done.unavailable) or None,
            not done.unavailable,
            f"place {ordinal}",
        )
        for ordinal, (change, done) in enumerate(zip(changes, resolve(changes, rows), strict=True))
        if change.unavailable
    ]


@share_of_profile(4)
@given(STEPS, LOST, STORED_ROWS, SIZES, st.booleans())
def test_key_chains_alone_are_the_whole_batch(
    steps: list[tuple[Any, ...]],
    lost: set[ModType],
    stored: dict[int, Any],
    sizes: list[int],
    names_all: bool,
) -> None:
    """A row's key chain has the row and those which changes of keys connect with it, but for truncates.

    That holds where the source loses changes, too, so that rows continue after they have ended.
    """
    rows_before = {number: {"a": 0, "big": LARGE[0] if big is ... else big} for number, big in stored.items()}
    played = play(steps, rows_before).changes
    changes = [change for change in played if change.mod_type not in lost]
    numbered = list(enumerate(changes))
    truncates = [ordinal for ordinal, change in numbered if change.mod_type is ModType.TRUNCATE]
    lines = [
        line_of(ordinal, change, names_all=names_all)
        for ordinal, change in numbered
        if change.mod_type is not ModType.TRUNCATE
    ]
    expected = expected_of(changes, stored, names_all=names_all)
    lines = with_chains([*stored_lines(stored), *lines])
    assert expected == completed(lines, truncates, sizes[0])


@share_of_profile(3)
@given(STEPS, LOST, SIZES, st.sets(st.integers(0, 60)))
def test_a_log_with_late_changes_is_followed_in_the_order_of_the_source(
    steps: list[tuple[Any, ...]], lost: set[ModType], sizes: list[int], coming: set[int]
) -> None:
    """Changes of the batch get values from earlier ones, no matter which of these the log already had."""
    changes = [change for change in play(steps, {}).changes if change.mod_type not in lost]
    lines = []
    for place, change in enumerate(changes):
        # The log numbers changes as they arrive.
        ordinal = place + 1_000 if place in coming else place
        line = line_of(ordinal, change, names_all=False)
        is_of_batch = place in coming and line[REST] is not None
        line |= {SOURCE_PLACE: f"{place:03d}", REST: line[REST] if is_of_batch else None}
        line |= {KEY_CHAIN: "all", LOGGED_MICROS: None if place in coming else 1}
        lines.append(line if change.mod_type is not ModType.TRUNCATE else {**line, "keys": None})
    expected = [
        (place + 1_000, *values[1:-1], f"place {place + 1_000}")
        for values in expected_of(changes, {}, names_all=False)
        for place in [values[0]]
        if place in coming
    ]
    assert expected == completed(lines, [0], sizes[0])


def test_values_of_a_former_type_are_none_of_the_column() -> None:
    """A change of the log gives only values that its columns have had since they got their types."""
    lines = [
        line_of(0, RowChange(TABLE, key(1), ModType.INSERT, {"a": 1, "big": "old"}), names_all=False),
        line_of(1, RowChange(TABLE, key(1), ModType.UPDATE, {}, ("a", "big")), names_all=False),
    ]
    lines = [{**line, SOURCE_PLACE: "0"} for line in lines]
    lines[0][LOGGED_MICROS] = 100
    chains = ChainCompleter((*CHANGE_COLUMNS, "ordering_key"), {}, {(TABLE, "a"): 100, (TABLE, "big"): 101})
    (batch,) = chains(pa.Table.from_pylist(lines, LINES).to_batches())
    assert batch.column("new_values").to_pylist() == ['{"a":1}']
    assert batch.column("unavailable_columns").to_pylist() == [["big"]]


def test_numbers_keep_their_digits() -> None:
    """Values that were sent, and those of earlier changes, are written as they came."""
    first = line_of(0, RowChange(TABLE, key(1), ModType.UPDATE, {}), names_all=False)
    first["new_values"] = '{"a":1,"big":1.10}'
    second = line_of(1, RowChange(TABLE, key(1), ModType.UPDATE, {}, ("big",)), names_all=False)
    second["new_values"] = '{"a":12345678901234567890.50}'
    chains = ChainCompleter((*CHANGE_COLUMNS, "ordering_key"), {}, {})
    (batch,) = chains(pa.Table.from_pylist([first, second], LINES).to_batches())
    expected = ['{"a":12345678901234567890.50,"big":1.10}']
    assert expected == batch.column("new_values").to_pylist()


def test_tasks_load_no_catalog() -> None:
    """A Python worker of Spark that completes rows imports no library of the lake, which takes 0.5 s."""
    code = "import sys, cdc_platform.pipeline.completing.key_chains; print('pyiceberg' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "False"
