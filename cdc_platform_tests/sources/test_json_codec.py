import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.json_codec import parser_of, read_members, write

parse = parser_of(Decimal, str)
parse_slowly = json.JSONDecoder(parse_float=Decimal, parse_constant=str).decode

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20
)
ODD = {
    "all digits": "123456789012345678901234567890.12345678901234567890",
    "beyond 64 bits": "[18446744073709551616, -9223372036854775809]",
    "exponents": "[1e400, 1E-400, -0.0]",
    "constants": '{"a": NaN, "b": -Infinity}',
    "half of a character": '"\\ud800"',
    "a name twice": '{"a": 1, "a": 2}',
}


@given(DOCUMENTS)
def test_what_is_written_is_the_document(document: Any) -> None:
    """A document that was written and parsed again is the same one, and there is no space in it."""
    text = write(document)

    assert document == json.loads(text)
    assert parse_slowly(text) == parse(text) == parse(text.encode())


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_documents_are_those_of_the_standard_library(text: str) -> None:
    """Numbers keep their digits, and what is more than JSON is taken as the standard library takes it."""
    assert repr(parse_slowly(text)) == repr(parse(text)) == repr(parse(text.encode()))


@pytest.mark.parametrize("text", ['{"a": 1', "{'a': 1}", "01", '"\t"', b'"\xff"', "[" * 200_000])
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    """Any malformed text is a ValueError, at any depth of nesting."""
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


def test_decimals_are_texts_and_halves_of_characters_stay() -> None:
    """A value that JSON cannot express is written as its text."""
    written = [write(value) for value in ({"a": Decimal("1.50")}, "\ud800")]

    assert written == ['{"a":"1.50"}', '"\ud800"']


@given(st.dictionaries(TEXTS, DOCUMENTS))
def test_members_stay_as_they_are_written(document: dict[str, Any]) -> None:
    """An object that is taken apart and put together again is the same text."""
    text = write(document)

    assert text == write(read_members(text))


@pytest.mark.parametrize("value", ['"\\ud800"', "NaN", "1.10"])
def test_odd_members(value: str) -> None:
    """Half a character, which msgspec does not take, and a number's digits are kept."""
    members = read_members(f'{{"a": {value}, "b": [1, 2]}}')

    assert f'{{"a":{value},"b":[1, 2]}}' == write(members)
