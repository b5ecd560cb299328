"""Order keys: the order of the texts is the order of what they render."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.order_key import record_order, spanner_order_key
from cdc_platform_tests.strategies import micros, record_sequences, transaction_ids

Sequence = tuple[tuple[int, int], str]

ORDER_PARTS = st.tuples(
    micros(low=0) | st.integers(0, 2),
    transaction_ids(),
    record_sequences(),
    st.integers(0, 2**31 - 1),
)


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
        ("\u0661", "~\u0661"),  # digits of other scripts are no hex digits
        ("1_0", "~1_0"),
        ("1" * 17, "~" + "1" * 17),  # more than 64 bits
    ],
)
def test_record_order_is_documented(sequence: str, expected: str) -> None:
    """Both documented forms become 32 hex digits, and anything else sorts after them."""
    assert expected == record_order(sequence)


@given(record_sequences(), record_sequences())
def test_text_order_of_sequences_is_their_order(one: Sequence, other: Sequence) -> None:
    """Sequences compare as texts as their pairs of numbers do, in whatever form each is written."""
    (typed, text), (other_typed, other_text) = one, other
    assert (typed < other_typed) == (record_order(text) < record_order(other_text))


@given(st.lists(ORDER_PARTS, min_size=2, max_size=5))
def test_text_order_of_keys_is_typed_order(parts: list[tuple[int, str, Sequence, int]]) -> None:
    """Order keys sort by commit timestamp, transaction, record and mod."""
    typed = sorted(parts, key=lambda part: (part[0], part[1], part[2][0], part[3]))
    as_text = [spanner_order_key(commit, tx, record_order(seq[1]), mod) for commit, tx, seq, mod in typed]
    assert sorted(as_text) == as_text
