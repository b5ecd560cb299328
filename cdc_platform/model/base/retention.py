"""Retention of past moments: all of the last minutes, and fewer with growing age."""

from collections.abc import Iterable
from math import ceil
from typing import Final

THINNED: Final = ((3600, 60), (None, 900))
"""Pairs of an age and a period in seconds: up to that age one moment per period stays; None is any age.

The second period is a multiple of the first, so that the first moment of a quarter of an hour has always
been the first of its minute.
"""


def max_kept(last_s: float) -> int:
    """Return the maximum number of moments that stay where they are thinned out."""
    count, begin_s = 0, 0.0
    for limit_s, period_s in THINNED:
        end_s = last_s if limit_s is None else min(limit_s, last_s)
        # Each period that the time range touches keeps its first moment.
        count += ceil((end_s - begin_s) / period_s) + 1 if end_s > begin_s else 0
        begin_s = end_s
    return count


def kept_moments(
    moments_micros: Iterable[int], now_micros: int, every_s: float, last_s: float
) -> frozenset[int]:
    """Return the moments that stay.

    No earlier call gave up any of them, except the first of the quarter of an hour in which `last_s` ends.

    Args:
        moments_micros: microseconds since 1970.
        now_micros: the present.
        every_s: age in seconds up to which all moments stay, unless it exceeds `last_s`.
        last_s: age in seconds beyond which no moment stays.
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
