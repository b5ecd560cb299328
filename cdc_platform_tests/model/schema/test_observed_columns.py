"""Columns as records describe them, compared with those of their table."""

import json
from collections.abc import Mapping

import pytest

from cdc_platform.model.schema.observed_columns import MAY_NOT_FIT, declares_types_of
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


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
        (True, {"id": "INT64!"}),  # an unobserved column is NULL
        (True, {"id": "INT64!", "new": "DATE"}),  # the table gets the column as observed
        (False, {"id": "INT64!", "v": "INT64"}),
        (False, {"id": "STRING!", "v": "STRING"}),
        (False, {"id": "INT64!", "v": "STRING!"}),
        (False, {"v": "STRING"}),
    ],
)
def test_records_have_the_types_of_their_table_or_not(expected: bool, columns: Mapping[str, str]) -> None:
    """Key and types of a table's columns must match; without a table only the key must be observed."""
    schema = TableSchema("t", (Column("id", INT64, True, 1), Column("v", ColumnType("STRING"), False, 2)))
    assert expected == declares_types_of(schema, types_of(columns))
    assert ("id" in columns) == declares_types_of(None, types_of(columns))


def test_a_column_whose_values_may_not_fit_is_looked_at() -> None:
    """A source that is not sure of a column's values marks it, and then its events are looked at."""
    (column,) = json.loads(types_of({"id": "INT64!"}))
    assert declares_types_of(None, json.dumps([column]))
    assert not declares_types_of(None, json.dumps([{**column, MAY_NOT_FIT: True}]))
