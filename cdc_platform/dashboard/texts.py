"""Moments as people read them."""

from typing import Final

from cdc_platform.model.base.timestamps import to_datetime

_DAY_MICROS: Final = 86_400 * 1_000_000


def as_time(micros: int) -> str:
    """Return the time of day of a moment, in UTC."""
    return f"{to_datetime(micros):%H:%M:%S}"


def as_moment(micros: int) -> str:
    """Return the day and the time of a moment, in UTC."""
    return f"{to_datetime(micros):%Y-%m-%d %H:%M:%S} UTC"


def as_tick(micros: int, span_micros: int) -> str:
    """Return a moment on the axis of a chart: with the day where it shows more than one."""
    moment = to_datetime(micros)
    if span_micros > _DAY_MICROS:
        return f"{moment:%d %b %H:%M}"
    return f"{moment:%H:%M}" if span_micros > _DAY_MICROS // 24 else f"{moment:%H:%M:%S}"
