"""Numbers and durations as people read them."""

import pytest

from cdc_platform.model.base.quantities import as_age, as_count, as_duration, as_number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-1, "0 s"), (0, "0 s"), (0.00003, "0 s"), (0.42, "0.42 s"), (9.96, "10 s"), (59.4, "59 s")),
        # Rounding comes first, so that a unit is never full.
        *((59.6, "1 min"), (119.9, "2 min"), (3599.9, "1 h")),
        *((61, "1 min 1 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (90_000, "1 d 1 h")),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has its two largest units."""
    assert text == as_duration(seconds)


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s ago"), (200, "3 min 20 s ago")])
def test_ages(seconds: float, text: str) -> None:
    """An age is a duration; a clock that was set back makes none negative."""
    assert text == as_age(seconds)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.25, "0.25"), (9, "9"), (1234.6, "1,235"), (12_345_678, "12.3 M")]
)
def test_numbers(number: float, text: str) -> None:
    """A number has as many digits as can be read at a glance."""
    assert text == as_number(number)


def test_counts() -> None:
    """A number has the plural of what it counts, unless it is one."""
    assert [as_count(number, "file") for number in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]
