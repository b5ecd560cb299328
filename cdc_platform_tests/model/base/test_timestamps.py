"""Timestamps: microseconds, texts and datetimes are three forms of one moment."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.timestamps import (
    from_datetime,
    from_rfc3339,
    to_datetime,
    to_nanosecond_text,
    to_rfc3339,
)
from cdc_platform_tests.strategies import micros


@given(micros())
def test_round_trips(moment: int) -> None:
    """Text and datetime give back the microseconds that they were made of."""
    assert moment == from_rfc3339(to_rfc3339(moment))
    assert moment == from_datetime(to_datetime(moment))


@given(micros(), micros())
def test_text_order_is_time_order(item: int, other: int) -> None:
    """The texts sort as the moments do."""
    assert (item < other) == (to_rfc3339(item) < to_rfc3339(other))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456),  # nanoseconds are cut off
        ("1969-12-31T23:59:59.999999999Z", -1),  # towards the past, before the epoch too
        ("1970-01-01T01:00:00.000001+01:00", 1),  # PostgreSQL dialect
        ("1970-01-01 00:00:00-00:30", 1_800_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ],
)
def test_texts_of_both_dialects(text: str, expected: int) -> None:
    """Any offset and up to nine digits of a second are understood."""
    assert expected == from_rfc3339(text)


@given(st.tuples(micros(), st.integers(0, 999)), st.tuples(micros(), st.integers(0, 999)))
def test_order_of_nanosecond_texts_is_time_order(item: tuple[int, int], other: tuple[int, int]) -> None:
    """Texts with all nine digits sort as the moments do, and keep every digit."""
    texts = [
        to_nanosecond_text(to_rfc3339(moment).replace("Z", f"{nanos:03d}Z"))
        for moment, nanos in (item, other)
    ]
    assert (item < other) == (texts[0] < texts[1])
    assert item == (from_rfc3339(texts[0]), int(texts[0][-4:-1]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T01:02:03Z", "2024-02-29T01:02:03.000000000Z"),
        ("2024-02-29T01:02:03.12+01:00", "2024-02-29T00:02:03.120000000Z"),
        ("0001-01-01T00:00:00.000000001Z", "0001-01-01T00:00:00.000000001Z"),
    ],
)
def test_nanosecond_texts_are_in_utc(text: str, expected: str) -> None:
    """All spellings of a moment give the same text."""
    assert expected == to_nanosecond_text(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-11-21", "2026-11-21T00:00:00", "2026-13-01T00:00:00Z", "now"),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    """A text without an offset, that is not a timestamp, or none of the years that there are is an error."""
    with pytest.raises(ValueError, match=r"RFC 3339|month"):
        from_rfc3339(text)


def test_datetime_without_zone_is_refused() -> None:
    """A datetime that does not say its zone is an error."""
    with pytest.raises(ValueError, match="ambiguous"):
        from_datetime(datetime(2026, 11, 21, tzinfo=UTC).replace(tzinfo=None))
