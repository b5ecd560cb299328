"""Names of columns in histories: those of the history, and those of the source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.schema.column_versions import Bound, ColumnHistory, ColumnVersion
from cdc_platform.model.schema.table_options import columns_in_history, history_schema, name_in_history
from cdc_platform.model.schema.table_schema import ColumnType

NAMES = st.sampled_from(["valid_from", "Valid_To", "is_current", "transaction_id", "note", "valid_too"])
ENDS = st.sampled_from(["", "__source", "__SOURCE__source", "__sources", "__string"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("note", "note"),
        ("valid_to", "valid_to__source"),
        ("IS_CURRENT", "IS_CURRENT__source"),  # a lake takes no notice of case
        ("valid_to__source", "valid_to__source__source"),
        ("valid_to__string", "valid_to__string"),
    ],
)
def test_what_a_history_needs_has_another_name_there(name: str, expected: str) -> None:
    """All other columns keep theirs."""
    assert expected == name_in_history(name)


@given(st.lists(st.builds(str.__add__, NAMES, ENDS), unique_by=str.lower))
def test_no_two_columns_of_a_history_have_one_name(names: list[str]) -> None:
    """A history can have all columns of its table, in addition to the history's own columns."""
    versions = (
        ColumnVersion(name, name, ColumnType("STRING"), number == 0, number, Bound(1, None))
        for number, name in enumerate(names)
    )
    column_history = columns_in_history(ColumnHistory("t", tuple(versions)))
    columns = history_schema(column_history.whole_schema).columns
    assert len(names) + 4 == len({column.name.lower() for column in columns})
    assert names == [column.source_name for column in column_history.schema_after(0).columns]
