"""Texts of days, times and timestamps in the form of the change log, and errors for other values."""

import json
import math
import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from cdc_platform.model.base.number_texts import plain_digits
from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339

_INFINITIES: Final = {
    # moments without end, in the units of a second in which they arrive
    9223372036825200000: "infinity",
    -9223372036832400000: "-infinity",
    9223372036825200: "infinity",
    -9223372036832400: "-infinity",
    2**63 - 1: "infinity",
    -(2**63): "-infinity",
}
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_ORDINALS: Final = range(1, date.max.toordinal() + 1)
_DAY_MICROS: Final = 86_400_000_000
_ISO_MOMENT: Final = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?", re.ASCII)
_ISO_CLOCK: Final = re.compile(r"(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?", re.ASCII)
_END_OF_DAY: Final = "24:00:00"
_ISO_DAY: Final = re.compile(r"(\d{4}-\d{2}-\d{2})Z?", re.ASCII)
_JAVA_OBJECT: Final = re.compile(r"\[*\[L[\w.$]+;@[0-9a-f]+", re.ASCII)


class ValueRefused(ValueError):
    """A value that does not fit its column's type, or that the lake cannot store; the text has the remedy."""


def finite(value: Any) -> float:
    """Return a number that is neither NaN nor infinite."""
    number = float(value)
    if math.isinf(number):
        raise OverflowError(value)
    return number


def plain_text(value: Any) -> str:
    """Return a text; reject other values."""
    if not isinstance(value, str):
        raise TypeError(value)
    if value.startswith("[") and _JAVA_OBJECT.fullmatch(value):
        refuse(
            "is the name of a Java object: Debezium cannot read arrays of two dimensions. Ignore the column"
        )
    return value


def days_text(value: int, *, is_lenient: bool) -> str:
    """Return the text of a day counted from 1970."""
    ordinal = _int_of(value) + _EPOCH_ORDINAL
    if ordinal in _ORDINALS:
        return date.fromordinal(ordinal).isoformat()
    return _beyond(value, is_lenient=is_lenient)


def iso_date_text(value: str, *, is_lenient: bool) -> str:
    """Return the text of an ISO 8601 day."""
    match = _ISO_DAY.fullmatch(value)
    if match is None:
        return _beyond(value, is_lenient=is_lenient)
    return date.fromisoformat(match.group(1)).isoformat()


def units_to_micros(value: int, digits: int) -> int:
    """Return the microseconds; finer digits, which PostgreSQL does not have, are truncated."""
    number = _int_of(value)
    return number // 1000 if digits > _MICRO_DIGITS else number * 10 ** (_MICRO_DIGITS - digits)


_MICRO_DIGITS: Final = 6


def clock_text(micros: int) -> str:
    """Return the text of a time of day."""
    if not 0 <= micros <= _DAY_MICROS:
        raise ValueError(micros)
    seconds, rest = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


def iso_time_text(value: str) -> str:
    """Return the text of an ISO 8601 time of day."""
    match = _ISO_CLOCK.fullmatch(value)
    if match is None:
        raise ValueError(value)
    # In PostgreSQL a day may end with 24:00:00.
    if match.group(1) != _END_OF_DAY:
        time.fromisoformat(match.group(1))
    return f"{match.group(1)}.{_six(match.group(2))}"


def local_text(value: int, digits: int, *, is_lenient: bool) -> str:
    """Return the text of a local time counted from 1970."""
    endless = _INFINITIES.get(value)
    if endless is not None:
        return _beyond(endless, is_lenient=is_lenient)
    try:
        return to_rfc3339(units_to_micros(value, digits)).removesuffix("Z")
    except OverflowError:
        return _beyond(value, is_lenient=is_lenient)


def iso_local_text(value: str, *, is_lenient: bool) -> str:
    """Return the text of an ISO 8601 local time."""
    match = _ISO_MOMENT.fullmatch(value)
    if match is None:
        return _beyond(value, is_lenient=is_lenient)
    datetime.fromisoformat(f"{match.group(1)}T{match.group(2)}")
    return f"{match.group(1)}T{match.group(2)}.{_six(match.group(3))}"


def zoned_text(value: str, *, is_lenient: bool) -> str:
    """Return the text of a timestamp in UTC."""
    try:
        return to_rfc3339(from_rfc3339(value))
    except (ValueError, OverflowError):
        return _beyond(plain_text(value), is_lenient=is_lenient)


def duration_text(value: int, digits: int) -> str:
    """Return an ISO 8601 text in seconds, since months and days are lost before the value arrives."""
    seconds = Decimal(_int_of(value)).scaleb(-digits)
    text = plain_digits(seconds)
    return f"PT{text.rstrip('0').rstrip('.') if '.' in text else text}S"


def json_text(value: Any) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=finite)


def _int_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _six(fraction: str | None) -> str:
    return (fraction or "").ljust(6, "0")[:6]


def as_text(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json_text(value)


def _beyond(value: Any, *, is_lenient: bool) -> str:
    if is_lenient:
        return as_text(value)
    return refuse(
        f"is beyond the years 1 to 9999, which the lake's type cannot say: {excerpt(value)}. Declare the "
        "column with ` as text` after its type, such as `date as text`, to keep what arrives"
    )


def refuse(problem: str) -> str:
    """Refuse a value, and say why."""
    raise ValueRefused(problem)


def excerpt(value: Any) -> str:
    """Return a value in the form for messages."""
    return json_text(value)[:200]
