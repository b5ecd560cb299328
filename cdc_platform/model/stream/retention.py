"""Retention of past moments: all of the last minutes, and fewer the longer ago."""

from collections.abc import Iterable
from math import ceil
from typing import Final

THINNED: Final = ((3600, 60), (None, 900))
"""Of moments younger than so many seconds one stays in so many seconds; None is any age.

The second period is a multiple of the first, so that the first moment of a quarter of an hour has always
been the first of its minute.
"""


def most_kept(last_s: float) -> int:
    """Return how many of the moments that are thinned out stay at most."""
    count, begin_s = 0, 0.0
    for limit_s, period_s in THINNED:
        end_s = last_s if limit_s is None else min(limit_s, last_s)
        # Each period that the time touches has a first moment.
        count += ceil((end_s - begin_s) / period_s) + 1 if end_s > begin_s else 0
        begin_s = end_s
    return count


def kept_moments(
    moments_micros: Iterable[int], now_micros: int, every_s: float, last_s: float
) -> frozenset[int]:
    """Return the moments that stay.

    None of them has been given up before, but for the first of the quarter of an hour in which `last_s` ends.

    Args:
        moments_micros: microseconds since 1970.
        now_micros: the present.
        every_s: all moments of so many seconds stay, unless that is longer than `last_s`.
        last_s: no older moment stays.
    """
    moments_kept, slots = set[int](), set[tuple[int, int]]()
    for moment_micros in sorted(moments_micros):
        age_s = (now_micros - moment_micros) / 1_000_000
        if age_s > last_s:
            continue
        if age_s > every_s:
            period_s = next(period for limit, period in THINNED if limit is None or age_s <= limit)
            place = (period_s, moment_micros // (period_s * 1_000_000))
            if place in slots:
                continue
            slots.add(place)
        moments_kept.add(moment_micros)
    return frozenset(moments_kept)
