"""Ordering keys: the order of the texts is the order of what they render."""

import pytest
from hypothesis import given

from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform_tests.strategies import record_sequences

Sequence = tuple[tuple[int, int], str]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("0000000a", "0" * 31 + "a"),  # immutable streams: eight digits
        ("A", "0" * 31 + "a"),  # width and case do not matter
        ("1000012389", "0" * 22 + "1000012389"),  # decimal digits keep their order when read as hex
        ("963d1af435fb3e79-00000000", "963d1af435fb3e79" + "0" * 16),  # mutable streams: two numbers
        ("0-1", "0" * 31 + "1"),  # a missing high number is zero
        ("", "~"),  # anything else follows, by its text
        ("0x1", "~0x1"),
        ("\u0661", "~\u0661"),  # digits of other scripts are not hex digits
        ("1_0", "~1_0"),
        ("1" * 17, "~" + "1" * 17),  # more than 64 bits
    ],
)
def test_record_order_is_documented(sequence: str, expected: str) -> None:
    """Both documented forms become 32 hex digits, and anything else sorts after them."""
    assert expected == record_order(sequence)


@given(record_sequences(), record_sequences())
def test_text_order_of_sequences_is_their_order(item: Sequence, other: Sequence) -> None:
    """Sequences compare as texts like their pairs of numbers, in every spelling."""
    (typed, text), (other_typed, other_text) = item, other
    assert (typed < other_typed) == (record_order(text) < record_order(other_text))
