"""Key chains that are followed line by line come out as the model says."""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.rows.resolution import RowChange, RowId, Values
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.completing.key_chains import STORED, STORED_PLACE, UNKNOWN, UNKNOWN_PLACE
from cdc_platform.spark.log.ordered_rows import lack_values
from cdc_platform_tests.strategies import share_of_profile
from cdc_platform_tests.support.reference.followed_lines import complete_locally
from cdc_platform_tests.support.reference.played_rows import LARGE, STEPS, TABLE, key, play
from cdc_platform_tests.support.reference.resolved_rows import resolve

LINES: Final = pa.schema(
    [
        ("table_name", pa.string()),
        ("keys", pa.string()),
        ("ordinal", pa.int64()),
        ("change_kind", pa.string()),
        ("new_values", pa.string()),
        ("unavailable_columns", pa.list_(pa.string())),
        ("is_whole_row", pa.bool_()),
    ]
)
CHANGES: Final = pa.schema([*LINES, ("previous_keys", pa.string()), ("ordering_key", pa.string())])
STORED_ROWS: Final = st.dictionaries(
    st.integers(1, 4), st.sampled_from([*LARGE, "short", None, ...]), max_size=4
)
"""Rows of the table; an ellipsis stands for an unknown value."""
LOST: Final = st.sets(st.sampled_from([ModType.INSERT, ModType.SNAPSHOT, ModType.DELETE]))


def table_of(changes: Sequence[RowChange]) -> pa.Table:
    """Return the changes of a batch as they are ordered."""
    rows = [
        {
            "table_name": change.table,
            "keys": change.key,
            "previous_keys": change.previous_key,
            "ordinal": ordinal,
            "ordering_key": f"place {ordinal}",
            "change_kind": change.mod_type.lower(),
            "new_values": None if change.new_values is None else json.dumps(change.new_values),
            "unavailable_columns": list(change.unavailable) or None,
            "is_whole_row": not change.unavailable,
        }
        for ordinal, change in enumerate(changes)
    ]
    return pa.Table.from_pylist(rows, CHANGES)


def stored_lines(stored: dict[int, Any], ids: Collection[RowId]) -> list[pa.Table]:
    """Return what the table has of rows that are looked up."""
    rows = [{"table_name": TABLE, "keys": key(number)} for number in stored if (TABLE, key(number)) in ids]
    values = {key(number): None if big is ... else big for number, big in stored.items()}
    unknown = {key(number) for number, big in stored.items() if big is ...}
    lines = [
        {**row, "ordinal": STORED_PLACE, "change_kind": STORED, "new_values": json.dumps({"big": big})}
        for row in rows
        for big in [values[row["keys"]]]
    ]
    unresolved = {"ordinal": UNKNOWN_PLACE, "change_kind": UNKNOWN, "unavailable_columns": ["big"]}
    of_unknown = [{**row, **unresolved} for row in rows if row["keys"] in unknown]
    return [pa.Table.from_pylist(table, LINES) for table in (lines, of_unknown)]


@share_of_profile(4)
@given(STEPS, LOST, STORED_ROWS)
def test_a_batch_is_completed_as_the_model_says(
    steps: list[tuple[Any, ...]], lost: set[ModType], stored: dict[int, Any]
) -> None:
    """Only rows that may have a value are looked up; the log is read where a row has left its key."""
    rows_before = {number: {"a": 0, "big": LARGE[0] if big is ... else big} for number, big in stored.items()}
    changes = [change for change in play(steps, rows_before).changes if change.mod_type not in lost]
    incomplete, origins = (
        set[RowId](),
        {change.previous_id or change.row_id for change in changes if change.unavailable},
    )

    def look_up(ids: Collection[RowId]) -> list[pa.Table]:
        incomplete.update(ids)
        return stored_lines(stored, ids)

    rows: dict[RowId, Values] = {
        (TABLE, key(number)): {} if big is ... else {"big": big} for number, big in stored.items()
    }
    ordered, expected = table_of(changes), resolve(changes, rows)
    actual = complete_locally(look_up, ordered, ordered.filter(lack_values(ordered)))
    assert incomplete <= origins
    if any(change.previous_key and change.unavailable for change in expected):
        assert actual is None
        return
    assert actual is not None
    whole = [
        change if change.new_values else before for change, before in zip(expected, changes, strict=True)
    ]
    actual_rows = [
        {**row, "new_values": row["new_values"] and json.loads(row["new_values"])}
        for row in actual.sort_by("ordinal").to_pylist()
    ]
    assert actual_rows == [
        {**row, "new_values": row["new_values"] and json.loads(row["new_values"])}
        for row in table_of(whole).to_pylist()
    ]
