"""Human-readable numbers and durations."""

from typing import Final

_DAY_S: Final = 86_400
_UNITS: Final = ((_DAY_S, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_MILLION: Final = 1_000_000
_EXACT_BELOW: Final = 10 * _MILLION
_FRACTIONS_BELOW: Final = 10


def as_number(number: float) -> str:
    """Return a number with separators; fractions below ten, millions from ten millions on."""
    if number >= _EXACT_BELOW:
        return f"{number / _MILLION:,.1f} M"
    if number != int(number) and number < _FRACTIONS_BELOW:
        return f"{number:.2g}"
    return f"{number:,.0f}"


def as_count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 file` or `2 files`."""
    return f"{as_number(number)} {noun if number == 1 else f'{noun}s'}"


def as_duration(seconds: float) -> str:
    """Return seconds in their two largest units, such as `3 min 20 s`; below ten with a fraction."""
    if seconds < _FRACTIONS_BELOW:
        return f"{as_number(round(max(0.0, seconds), 3))} s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller_unit in _UNITS:
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def as_age(seconds: float) -> str:
    """Return how long ago something was, such as `3 min 20 s ago`; of a moment to come `0 s ago`."""
    return f"{as_duration(seconds)} ago"
