"""The decision for a column of many rows is the one for each of its values."""

import json
from functools import reduce
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.schema.widening import joined_type
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.values.columns import HugeInteger, RowBatch, WideInteger, types_of
from cdc_platform.sources.datastream.values.inference import join_types, type_of_column, type_of_value
from cdc_platform.sources.datastream.values.json_text import JsonNumber
from cdc_platform.sources.datastream.values.rows import ColumnFaulty, RowReader, row_reader
from cdc_platform.sources.datastream.values.types import UNKNOWN_TYPE, FieldType, Kind
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform_tests.support.datastream.envelopes import Envelope, read_events
from cdc_platform_tests.unified_types import json_line

EDGES: Final = tuple(sign * 2**power + more for sign in (1, -1) for power in (53, 63) for more in (-1, 0, 1))
PLAIN: Final = (
    st.none(),
    st.booleans(),
    st.integers(-9, 9) | st.sampled_from(EDGES),
    st.sampled_from(["", "x", "NaN", "1", "true", "2024-01-01"]),
    st.sampled_from(["1.5", "1e3", "NaN", "-Infinity"]).map(JsonNumber),
)
VALUES: Final = st.one_of(*PLAIN, st.lists(st.one_of(*PLAIN), max_size=2), st.just({"a": 1}), st.just([[1]]))
COLUMNS: Final = st.sampled_from([*PLAIN, VALUES]).flatmap(
    lambda values: st.lists(values, min_size=1, max_size=5)
)
FIELDS: Final = [FieldType(kind) for kind in Kind if kind not in (Kind.DECIMAL, Kind.ARRAY)]


@given(COLUMNS)
@example([{"a": 1}, JsonNumber("NaN")])
@example([[1], JsonNumber("NaN")])
def test_the_type_of_a_column_is_that_of_its_values(values: list[Any]) -> None:
    """A look at the types of all values finds what a look at each value finds."""
    expected = reduce(join_types, map(type_of_value, values))
    assert expected == type_of_column(values, types_of(values))


TEXTS: Final = st.sampled_from(
    [
        *("null", "true", "1", "-0", "9007199254740993", "18446744073709551615", "1.50", "NaN", '"abc"'),
        *('"1.5"', "[]", "[1.5]", '["1.5"]', "[1]", '[{"a": 1}]', "{}", '{"a": [1, "x"]}'),
    ]
)


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_table_does_not_depend_on_how_rows_lie_in_files(files: list[list[str]]) -> None:
    """Columns have the same type and values, for any distribution of the rows over files."""
    together = read_lines([text for file in files for text in file])
    by_file = [typed for file in files for typed in read_lines(file)]
    assert [text for _, text in together] == [text for _, text in by_file]
    whole, parts = ([kind for kind, _ in typed if kind != UNKNOWN_TYPE] for typed in (together, by_file))
    assert whole[:1] == ([reduce(joined_type, parts)] if parts else [])


def read_lines(texts: list[str]) -> list[tuple[ColumnType, str | None]]:
    """Return the type of the column of a file, and the text that the lake has of each value of it."""
    lines = "\n".join(json_line(ordinal, {"c": text}) for ordinal, text in enumerate(texts))
    events = [each for each in read_events(lines.encode(), Decoding()) if isinstance(each, Envelope)]
    values = [each.values["c"] for each in events]
    shown = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return [(each.columns[0][1], text) for each, text in zip(events, shown, strict=True)]


@given(COLUMNS, st.sampled_from([*FIELDS, FieldType(Kind.ARRAY, element=FieldType(Kind.LONG))]))
def test_a_reader_that_is_not_asked_would_change_nothing(values: list[Any], field: FieldType) -> None:
    """Rows are the same, faults and types of Python included, whether or not a reader was fitted to them."""
    reader = row_reader((("c", field),), {}, json_reader)
    fitted = reader.specialise({"c": types_of(values)})
    assert [read(reader, value) for value in values] == [read(fitted, value) for value in values]


def read(reader: RowReader, value: Any) -> tuple[type, str]:
    """Return type and text of what is read, or of its fault."""
    try:
        (value_read,) = reader.read({"c": [value]})["c"]
    except ColumnFaulty as error:
        return type(error), str(error)
    return type(value_read), repr(value_read)


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([1, 2**53, -(2**53)], {int}),
        ([2**53 + 1], {int, WideInteger}),
        ([None, -(2**53) - 1], {int, WideInteger, type(None)}),
        ([2**63], {int, WideInteger, HugeInteger}),
        ([True, "x"], {bool, str}),
    ],
)
def test_large_integers_have_types_of_their_own(values: list[Any], types: set[type]) -> None:
    """Integers that a reader of JSON could round, and those beyond 64 bits, are distinguished."""
    assert types == types_of(values)


def test_a_batch_keeps_what_its_rows_were() -> None:
    """The types of columns stay those that the rows came with, also when the rows have been read."""
    batch = RowBatch.of(("o", "k"), [{"a": 1, "b": None}, {"a": 2, "b": "x"}])
    assert batch.columns == {"a": (1, 2), "b": (None, "x")}
    batch.rows[0]["a"] = "1"
    assert {"a": {int}, "b": {str, type(None)}} == batch.types
