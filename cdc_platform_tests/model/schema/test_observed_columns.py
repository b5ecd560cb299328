"""The records that represent all observed columns of a table in a cycle."""

import json
from collections.abc import Mapping
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.schema.observed_columns import (
    ObservedColumn,
    ObservedColumns,
    declares_types_of,
    keep_ends,
)
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


def observation(micros: int, width: int) -> ObservedColumns:
    """Return a whole row with so many columns."""
    columns = {f"c{number}": ObservedColumn(INT64, number == 0, number + 1) for number in range(width)}
    return ObservedColumns(micros, columns, is_whole=True, is_sure=True)


@given(st.lists(st.integers(1, 3)))
def test_the_ends_of_each_run_stay(widths: list[int]) -> None:
    """Of neighbours that look alike the first and the last stay: what came just before a change."""
    ends: list[ObservedColumns] = []
    for micros, width in enumerate(widths):
        keep_ends(ends, observation(micros, width))
    runs = [[micros for micros, _ in run] for _, run in groupby(enumerate(widths), key=lambda pair: pair[1])]
    assert [micros for run in runs for micros in sorted({run[0], run[-1]})] == [end.micros for end in ends]


def types_of(columns: Mapping[str, str]) -> str:
    """Return `column_types` of columns by name; those whose code ends with a mark are the key."""
    return json.dumps(
        [
            {
                "name": name,
                "type": {"code": code.rstrip("!")},
                "is_primary_key": code.endswith("!"),
                "ordinal_position": 1,
            }
            for name, code in columns.items()
        ]
    )


@pytest.mark.parametrize(
    ("expected", "columns"),
    [
        (True, {"id": "INT64!", "v": "STRING"}),
        (True, {"id": "INT64!"}),  # what is not told is NULL
        (True, {"id": "INT64!", "new": "DATE"}),  # the table gets it as it is told
        (False, {"id": "INT64!", "v": "INT64"}),
        (False, {"id": "STRING!", "v": "STRING"}),
        (False, {"id": "INT64!", "v": "STRING!"}),
        (False, {"v": "STRING"}),
    ],
)
def test_records_have_the_types_of_their_table_or_not(expected: bool, columns: Mapping[str, str]) -> None:
    """Key and types of what a table has must be the table's; without a table only the key must be told."""
    schema = TableSchema("t", (Column("id", INT64, True, 1), Column("v", ColumnType("STRING"), False, 2)))
    assert expected == declares_types_of(schema, types_of(columns))
    assert ("id" in columns) == declares_types_of(None, types_of(columns))
