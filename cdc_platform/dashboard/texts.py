"""Numbers and moments as people read them."""

from typing import Final

from cdc_platform.model.base.timestamps import to_datetime

_UNITS: Final = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_DAY_MICROS: Final = 86_400 * 1_000_000
_MILLION: Final = 1_000_000
_EXACT_BELOW: Final = 10 * _MILLION
_FRACTIONS_BELOW: Final = 10


def as_duration(seconds: float) -> str:
    """Return seconds in their two largest units, such as `3 min 20 s`; below ten with a fraction."""
    for size, unit, smaller_size, smaller_unit in _UNITS:
        if seconds >= size:
            rest = int(seconds % size // smaller_size)
            whole = f"{int(seconds // size)} {unit}"
            return f"{whole} {rest} {smaller_unit}" if rest else whole
    return f"{as_number(max(0.0, seconds))} s"


def as_number(number: float) -> str:
    """Return a number with separators; fractions below ten, millions from ten millions on."""
    if number >= _EXACT_BELOW:
        return f"{number / _MILLION:,.1f} M"
    if number != int(number) and number < _FRACTIONS_BELOW:
        return f"{number:.2g}"
    return f"{number:,.0f}"


def as_count(number: int, noun: str) -> str:
    """Return a number and what it counts, such as `1 file` or `2 files`."""
    return f"{as_number(number)} {noun if number == 1 else f'{noun}s'}"


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
