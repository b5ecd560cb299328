"""Sequences that users supply, in BigQuery's grammar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable
from cdc_platform.sources.datastream.events.sequences import sequence_order
from cdc_platform_tests.strategies import change_sequences


@pytest.mark.parametrize(
    ("greater", "smaller"),
    [
        # The examples of BigQuery's documentation.
        ("FFF/ABC", "FFF/B"),
        ("BA/FFFFFFFF", "AB/FFFFFFFF"),
        ("ABC", "BA/FFFFFFFF"),
        ("FFF/ABC", "ABC"),
        # A longer one follows those that it begins with.
        ("FFF/0", "FFF"),
        ("f/0/0/0", "F/0/0"),
        ("FFFFFFFFFFFFFFFF", "7FFFFFFFFFFFFFFF"),  # unsigned
    ],
)
def test_documented_order(greater: str, smaller: str) -> None:
    """Sections compare as unsigned numbers from left to right, also where something follows them."""
    assert sequence_order(greater) > sequence_order(smaller)
    assert f"{sequence_order(greater)} 0" > f"{sequence_order(smaller)} 1"


@pytest.mark.parametrize(
    "text", ["", "/", "1/", "1/2/3/4/5", "1" * 17, "G", "0x1", " 1", "1 ", "-1", "\u0661", "1//2", 7, None]
)
def test_everything_else_is_refused(text: object) -> None:
    """A fifth section, a seventeenth digit and what is no hex digit are faults, not places in an order."""
    with pytest.raises(RecordUnreadable, match="one to four sections"):
        sequence_order(text)


@given(change_sequences(), change_sequences(), st.sampled_from(["", " 0", " 1"]))
def test_text_order_is_the_order_of_numbers(
    item: tuple[tuple[int, ...], str], other: tuple[tuple[int, ...], str], tail: str
) -> None:
    """Sequences compare as texts as tuples of their numbers do, in whatever case and width they come."""
    (numbers, text), (other_numbers, other_text) = item, other
    ordered = f"{sequence_order(text)}{tail}" < f"{sequence_order(other_text)}{tail}"
    assert (numbers < other_numbers) == ordered
