"""Keys that people type: each is a value of its column's type in the source's JSON, or an error."""

import json
import re
from typing import Any

import pytest

from cdc_platform.errors import RowNotFound
from cdc_platform.model.rows.row_key import NANOSECOND_TEXT, KeyColumn, parse_key

PART = KeyColumn("part", "string")


def value_of(kind: str, text: str) -> Any:
    """Return the value of a key of one column."""
    return parse_key("items", (KeyColumn("id", kind),), text).values[0]


def first_of_two(kind: str, first_json: str) -> Any:
    """Return the first value of a key of two columns that is a JSON array."""
    return parse_key("items", (KeyColumn("id", kind), PART), f'[{first_json}, "p"]').values[0]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("long", "-9223372036854775808", "-9223372036854775808"),
        ("long", "007", "7"),
        ("double", "1.5", 1.5),
        ("double", "-2e3", -2000.0),
        ("double", "NaN", "NaN"),
        ("double", "Infinity", "Infinity"),
        ("double", "-Infinity", "-Infinity"),
        ("float", "0.1", 0.10000000149011612),  # the nearest double, as the source sends it
        ("decimal(38, 9)", "12345678901234567890123456789.123456789", None),
        ("decimal(38, 9)", "1.5e3", "1500"),
        ("decimal(38, 9)", "1.50000000000", None),  # nothing is lost
        ("string", "part 1", None),
        ("string", "[7", None),
        ("string", "null", None),
        ("binary", "AP8=", None),
        ("date", "2024-02-29", None),
        ("timestamptz", "2026-01-31T08:00:00.5Z", None),
        ("timestamptz", "2026-01-31T09:00:00+01:00", None),
        (NANOSECOND_TEXT, "2026-01-31T09:00:00.5+01:00", "2026-01-31T08:00:00.500000000Z"),
    ],
)
def test_a_value_is_encoded_by_its_type(kind: str, text: str, expected: Any) -> None:
    """The text of a value becomes what the source writes for it; None stands for the text itself."""
    assert (text if expected is None else expected) == value_of(kind, text)


@pytest.mark.parametrize(
    ("kind", "first_json", "expected"),
    [
        ("long", "7", "7"),
        ("long", '"7"', "7"),
        ("long", "null", None),
        ("boolean", "true", True),
        ("boolean", '"true"', True),
        ("double", "1", 1.0),
        ("double", "1.9", 1.9),
        ("double", "NaN", "NaN"),
        ("double", "-Infinity", "-Infinity"),
        ("double", '"Infinity"', "Infinity"),
        ("decimal(38, 9)", "12345678901234567890.123456789", "12345678901234567890.123456789"),
        ("string", '"1.9"', "1.9"),
    ],
)
def test_a_value_in_json_is_encoded_by_its_type(kind: str, first_json: str, expected: Any) -> None:
    """Numbers may be JSON's own, and lose no digit; null is NULL."""
    assert expected == first_of_two(kind, first_json)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "yes"),
        ("boolean", "1"),
        ("long", "one"),
        ("long", "1_000"),
        ("long", "1.0"),
        ("long", " 1"),
        ("long", "\u0661"),  # a digit, but no ASCII
        ("long", "9223372036854775808"),
        ("long", "null"),
        ("double", "1_000.5"),
        ("double", "1e999"),
        ("double", "inf"),
        ("double", "nan"),
        ("float", "1e39"),
        ("float", "1e999"),
        ("decimal(38, 9)", "NaN"),
        ("decimal(38, 9)", "1_0"),
        ("decimal(38, 9)", "0.0000000001"),
        ("decimal(38, 9)", "1e29"),
        ("decimal(38, 9)", "1e999999999"),
        ("binary", "AP8"),
        ("binary", "not base64"),
        ("date", "2024-13-45"),
        ("date", "20240101"),
        ("date", "2023-02-29"),
        ("timestamptz", "yesterday"),
        ("timestamptz", "2026-01-31T08:00:00"),
        ("timestamptz", "2026-13-31T08:00:00Z"),
        ("timestamptz", "0001-01-01T00:00:00+01:00"),
        (NANOSECOND_TEXT, "yesterday"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(kind: str, text: str) -> None:
    """The error names column, table, type and what was typed."""
    message = f"Key column `id` of `items` is {kind}, and not: {text}"
    with pytest.raises(RowNotFound, match=re.escape(message) + "$"):
        value_of(kind, text)


@pytest.mark.parametrize(
    ("kind", "first_json"),
    [
        ("long", "[1]"),
        ("long", '{"id": 1}'),
        ("long", "1.9"),
        ("long", "1e999"),
        ("long", "true"),
        ("long", "Infinity"),
        ("double", "true"),
        ("double", "1e999"),
        ("double", "1" + "0" * 400),
        ("decimal(38, 9)", "false"),
        ("boolean", "1"),
        ("string", "7"),
        ("string", '"\\ud800"'),
        ("binary", "7"),
        ("date", "2024"),
        ("timestamptz", "1.5"),
    ],
)
def test_what_is_no_value_of_the_type_in_json_is_refused(kind: str, first_json: str) -> None:
    """No other type of JSON is taken for the column's, and none ends in a traceback."""
    with pytest.raises(RowNotFound, match=re.escape(f"Key column `id` of `items` is {kind}, and not: ")):
        first_of_two(kind, first_json)


@pytest.mark.parametrize(
    "text", ["7", '["7"]', '["7", "p", 1]', '{"id": 7}', "[1e" + "9" * 30 + "]", "[" * 9999]
)
def test_a_part_of_a_key_is_refused(text: str) -> None:
    """A key of two columns names both."""
    with pytest.raises(RowNotFound, match="A key of `items` has 2 columns"):
        parse_key("items", (KeyColumn("id", "long"), PART), text)


@pytest.mark.parametrize(
    ("kind", "typed", "logged"),
    [
        ("double", "NaN", "NaN"),
        ("double", "-Infinity", "-Infinity"),
        ("double", "1e0", 1),
        ("float", "0.1", 0.10000000149011612),
        ("decimal(38, 9)", "1.50", "1.5"),
        ("decimal(38, 9)", "0e5", "0"),
        ("timestamptz", "2026-01-31T09:00:00+01:00", "2026-01-31T08:00:00.000000Z"),
        (NANOSECOND_TEXT, "2026-01-31T08:00:00.500000000Z", "2026-01-31T09:00:00.5+01:00"),
        ("long", "007", 7),
        ("int", "-7", "-7"),
    ],
)
def test_a_key_is_found_however_it_is_written(kind: str, typed: str, logged: Any) -> None:
    """The log's key is the same one, and its values are JSON that others read, too."""
    key = parse_key("items", (KeyColumn("id", kind),), typed)
    assert key.is_same(json.dumps({"id": logged}))
    assert not key.is_same(json.dumps({"id": None}))
    assert "NaN" not in re.sub('"[^"]*"', "", key.to_json())


def test_whole_numbers_are_looked_for_as_texts_and_as_numbers() -> None:
    """Spanner writes whole numbers as texts, and sources of events as numbers."""
    columns = (KeyColumn("id", "long"), KeyColumn("code", "string"))
    actual = parse_key("items", columns, '["7", "7"]').spellings()
    assert {'{"id":"7","code":"7"}', '{"code":"7","id":7}', '{"id": 7, "code": "7"}'} < set(actual)
