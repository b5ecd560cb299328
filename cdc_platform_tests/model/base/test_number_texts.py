"""Numbers are what their grammar says, and not what Python's parsers take."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.number_texts import (
    decimal_number,
    float_number,
    hex_bytes,
    number_text,
    plain_digits,
    whole_number,
)

NO_NUMBERS = ["1_0", " 1", "1\n", "", "+", ".", "1e", "0x10", "--1", "\u0661", "\uff11", "1,5", "na n"]


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("read", [whole_number, decimal_number, float_number, number_text])
def test_everything_else_is_refused(read: Callable[[Any], object], text: str) -> None:
    """Spaces, underscores and digits of other scripts are not part of a number."""
    with pytest.raises(ValueError, match="number"):
        read(text)


@pytest.mark.parametrize("value", [True, None, [1]])
@pytest.mark.parametrize("read", [whole_number, decimal_number, float_number])
def test_what_is_no_text_and_no_number_is_refused(read: Callable[[Any], object], value: object) -> None:
    """A truth value is not a number either."""
    with pytest.raises((ValueError, TypeError), match="number"):
        read(value)


@given(st.integers(), st.decimals(allow_nan=False), st.floats(allow_nan=False))
def test_numbers_are_read_as_they_are_written(whole: int, decimal: Decimal, double: float) -> None:
    """Numbers and their texts are the same, with all of their digits."""
    assert whole == whole_number(whole) == whole_number(str(whole))
    assert decimal == decimal_number(decimal) == decimal_number(str(decimal))
    assert double == float_number(double) == float_number(repr(double))


@pytest.mark.parametrize("exponent", [200_000, 10**15, -(10**15)])
def test_digits_are_bounded(exponent: int) -> None:
    """A number of few characters does not become a text, or an integer, of endless digits."""
    number = Decimal((0, (1,), exponent))
    with pytest.raises(ValueError, match="too many digits"):
        plain_digits(number)
    with pytest.raises(ValueError, match=r"number|digits"):
        whole_number(number)
    with pytest.raises(ValueError, match="exponent"):
        decimal_number("1e99999999999999999999")
    assert (whole_number(Decimal("1.2e1")), plain_digits(Decimal("1.2e2"))) == (12, "120")


@pytest.mark.parametrize("text", ["NaN", "nan", "-NAN"])
def test_no_number_has_a_word(text: str) -> None:
    """Databases spell NaN in several ways."""
    assert math.isnan(float_number(text))


def test_hex_digits_have_nothing_between_them() -> None:
    """Bytes are two digits each."""
    assert hex_bytes("00fF") == b"\x00\xff"
    for text in ("ab cd", "abc", "\uff11\uff11"):
        with pytest.raises(ValueError, match="hex"):
            hex_bytes(text)
