import math

import pytest
from google.protobuf.struct_pb2 import Value  # type: ignore[import-untyped] # ships no types
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.spanner.client import wire
from cdc_platform_tests.sources.spanner.fake_server import Plain, to_value

PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)


def read(value: bytes) -> Plain:
    """Return the results of the functions under test for a value."""
    if value[0] == wire.LIST_TAG:
        return [read(item) for item in wire.items(value)]
    if value[0] == wire.BOOL_TAG:
        return wire.boolean(value)
    return wire.number(value) if value[0] == wire.NUMBER_TAG else wire.text(value)


@given(PLAIN)
def test_values_are_read_as_protobuf_wrote_them(plain: Plain) -> None:
    """Any value is read from its bytes as it was."""
    assert plain == read(to_value(plain).SerializeToString())


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_lengths_of_any_number_of_bytes(length: int) -> None:
    """Lengths at and around the limits of their encoding are read."""
    text = "x" * length

    assert [text, "end"] == read(to_value([text, "end"]).SerializeToString())


def test_number_may_be_a_text() -> None:
    """NaN and the infinities come as text."""
    assert math.isnan(wire.number(Value(string_value="NaN").SerializeToString()))
    assert -math.inf == wire.number(Value(string_value="-Infinity").SerializeToString())


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (wire.text, True),
        (wire.required_text, None),
        (wire.boolean, "true"),
        (wire.items, "x"),
        (wire.number, []),
    ],
)
def test_other_type_is_refused(function: object, plain: Plain) -> None:
    """A value of another type is an error, not a guess."""
    with pytest.raises(ValueError, match="was expected"):
        function(to_value(plain).SerializeToString())  # type: ignore[operator] # each is a function of bytes


def test_list_that_is_cut_short_is_refused() -> None:
    """A list whose last value misses bytes is an error."""
    with pytest.raises(ValueError, match="whole list"):
        wire.items(to_value(["abc", "def"]).SerializeToString()[:-1])
