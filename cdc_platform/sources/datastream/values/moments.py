"""Texts of days, times, timestamps and intervals, from Avro's numbers and from JSON's texts.

PostgreSQL's infinities become the first and the last time that both Spark and Python support. Any other
time outside the years 1 to 9999 is rejected, since the lake's types cannot represent it. A column declared
as STRING has the words `infinity` and `-infinity`, and years of any size.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa

MICROS_PER_SECOND: Final = 10**6
MICROS_PER_DAY: Final = 86_400 * MICROS_PER_SECOND
INFINITY_MICROS: Final = 9_223_372_036_825_200_000
"""Datastream's number for PostgreSQL's infinity; only other infinities are not earlier."""
MINUS_INFINITY_MICROS: Final = -9_223_372_036_832_400_000
INFINITY: Final = "infinity"
MINUS_INFINITY: Final = "-infinity"
MIDNIGHT: Final = "T00:00:00.000000"
FIRST_MOMENT: Final = "0001-01-01T00:00:00.000000"
LAST_MOMENT: Final = "9999-12-31T23:59:59.999999"

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the texts of moments are made without a zone
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_WHOLE_SECOND_LENGTH: Final = len("1970-01-01T00:00:00")
# The calendar repeats every 400 years.
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_MOMENT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}(?::?[0-5]\d)?)?)?", re.ASCII
)
"""The accepted subset of `fromisoformat`, which also takes weeks and any character before the time."""
_PLAIN_MOMENTS: Final = re.compile(r"(?:\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?Z\n)*+", re.ASCII)
"""Moments in UTC in a notation that Arrow reads in the same way, each with a line end."""
_UTC_MOMENT: Final = pa.timestamp("us", "UTC")
_OFFSET: Final = re.compile(r"[^Tt ]*[Tt ].*?([+-]\d{2})(?::?(\d{2}))?", re.ASCII | re.DOTALL)
_FAR_MOMENT: Final = re.compile(r"([+-]?\d{4,6})(-\d{2}-\d{2})(?:[Zz]|[Tt ](.+))?", re.ASCII | re.DOTALL)
_TIME: Final = re.compile(
    r"(-?)(\d{1,4}):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(Z|z|[+-]\d{2}(?::?[0-5]\d)?)?", re.ASCII
)
_DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<years>[+-]?\d+)Y)?(?:(?P<months>[+-]?\d+)M)?(?:(?P<weeks>[+-]?\d+)W)?"
    r"(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


class MomentRefused(ValueError):
    """A time outside the years that the lake's types can represent."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text} is outside the years 1 to 9999; declare the column as STRING to keep it")


def moment_text(micros: int) -> str:
    """Return the text of a timestamp without a zone, always with six digits of a second."""
    try:
        text = (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        return _infinity(micros)
    # Formatting with six digits directly takes twice as long.
    return text if len(text) > _WHOLE_SECOND_LENGTH else f"{text}.000000"


def _infinity(micros: int) -> str:
    if micros >= INFINITY_MICROS:
        return LAST_MOMENT
    if micros <= MINUS_INFINITY_MICROS:
        return FIRST_MOMENT
    raise MomentRefused(far_moment_text(micros))


def far_moment_text(micros: int) -> str:
    """Return the text of any timestamp: infinities as words, and longer years with their sign."""
    if micros >= INFINITY_MICROS or micros <= MINUS_INFINITY_MICROS:
        return INFINITY if micros > 0 else MINUS_INFINITY
    days, rest = divmod(micros, MICROS_PER_DAY)
    return (
        f"{far_day_text(days)}T{(_EPOCH + timedelta(microseconds=rest)).isoformat('T', 'microseconds')[11:]}"
    )


def day_text(days: int) -> str:
    """Return the text of a day counted from 1970-01-01."""
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (OverflowError, ValueError):
        return moment_text(days * MICROS_PER_DAY)[:10]


def far_day_text(days: int) -> str:
    """Return the text of any day, with infinities as for timestamps."""
    if not MINUS_INFINITY_MICROS < days * MICROS_PER_DAY < INFINITY_MICROS:
        return INFINITY if days > 0 else MINUS_INFINITY
    cycles, ordinal = divmod(_EPOCH_DAY + days - 1, _CYCLE_DAYS)
    computable = date.fromordinal(ordinal + 1)
    year = computable.year + cycles * _CYCLE_YEARS
    sign = "" if 0 <= year <= 9999 else "+" if year > 0 else "-"  # noqa: PLR2004 - the last year of four digits
    return f"{sign}{abs(year):04}{computable.isoformat()[4:]}"


def moment_micros(text: str) -> int:
    """Return the microseconds of a timestamp in any notation of Datastream; without an offset it is UTC.

    Raises:
        ValueError: the text is not a timestamp.
    """
    try:
        return _micros(_computable_moment(text))
    except ValueError:
        return _far_moment_micros(text)


def plain_micros(texts: Sequence[str]) -> Sequence[int] | None:
    """Return the microseconds of timestamps in UTC, as `moment_micros`; None if one has another notation."""
    if _PLAIN_MOMENTS.fullmatch("\n".join([*texts, ""])) is None:
        return None
    try:
        micros = pa.array(texts, pa.string()).cast(_UTC_MOMENT).view(pa.int64())
    except pa.ArrowInvalid:
        return None
    numbers: list[int] = micros.to_numpy().tolist()
    return numbers


def _computable_moment(text: str) -> datetime:
    if _MOMENT.fullmatch(text) is None:
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _micros(moment: datetime) -> int:
    return (moment - (_EPOCH if moment.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND


def offset_text(text: str) -> str:
    """Return the offset at the end of a timestamp's text, or `+00:00`."""
    match = _OFFSET.fullmatch(text)
    return f"{match[1]}:{match[2] or '00'}" if match else "+00:00"


def offset_of_millis(millis: int) -> str:
    """Return the text of an offset from UTC, from Avro's milliseconds."""
    sign, minutes = "-" if millis < 0 else "+", abs(millis) // 60_000
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def _far_moment_micros(text: str) -> int:
    if text.strip("+-").lower() in (INFINITY, "inf"):
        return MINUS_INFINITY_MICROS if text.startswith("-") else INFINITY_MICROS
    match = _FAR_MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a moment")
    cycles, year = divmod(int(match[1]) - 1, _CYCLE_YEARS)
    try:
        computable = _computable_moment(f"{year + 1 + _CYCLE_YEARS:04}{match[2]}T{match[3] or '00:00:00'}")
    except ValueError:
        raise ValueError(f"{text!r} is not a moment") from None
    return _micros(computable) + (cycles - 1) * _CYCLE_DAYS * MICROS_PER_DAY


def time_text(micros: int) -> str:
    """Return the text of a time of day or an interval; it has six digits of a fraction or none."""
    seconds, fraction = divmod(abs(micros), MICROS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    text = f"{'-' if micros < 0 else ''}{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{fraction:06}" if fraction else text


def time_micros(text: str) -> tuple[int, str | None]:
    """Return the microseconds of a time's text, and its offset or None.

    Raises:
        ValueError: the text is not a time.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    sign, hours, minutes, seconds, fraction, offset = match.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    micros = whole * MICROS_PER_SECOND + int((fraction or "").ljust(6, "0")[:6])
    return (-micros if sign else micros), _offset(offset)


def _offset(text: str | None) -> str | None:
    if text is None:
        return None
    digits = text[1:].replace(":", "").ljust(4, "0")
    return "+00:00" if text in "Zz" else f"{text[0]}{digits[:2]}:{digits[2:]}"


def interval_text(months: int, micros: int) -> str:
    """Return the ISO 8601 text of months and microseconds, each with its own sign."""
    sign, (seconds, fraction) = "-" if micros < 0 else "", divmod(abs(micros), MICROS_PER_SECOND)
    hours, rest = divmod(seconds, 3600)
    minutes, second = divmod(rest, 60)
    number = f"{second}.{fraction:06}" if fraction else str(second)
    parts = [f"{sign}{part}{unit}" for part, unit in ((hours, "H"), (minutes, "M")) if part]
    parts += [f"{sign}{number}S"] if second or fraction else []
    clock = f"T{''.join(parts)}" if parts else ""
    return f"P{f'{months}M' if months else ''}{clock}" if months or parts else "PT0S"


def interval_parts(text: str) -> tuple[int, int]:
    """Return months and microseconds of an ISO 8601 text.

    Raises:
        ValueError: the text is not an interval.
    """
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(f"{text!r} is not an interval")
    sign = -1 if match["sign"] == "-" else 1
    number = {
        name: int(match[name] or 0) for name in ("years", "months", "weeks", "days", "hours", "minutes")
    }
    hours = (number["weeks"] * 7 + number["days"]) * 24 + number["hours"]
    micros = (hours * 60 + number["minutes"]) * 60 * MICROS_PER_SECOND + _second_micros(
        match["seconds"] or "0"
    )
    return sign * (number["years"] * 12 + number["months"]), sign * micros


def _second_micros(text: str) -> int:
    integer, _, fraction = text.partition(".")
    micros = abs(int(integer)) * MICROS_PER_SECOND + int(fraction.ljust(6, "0")[:6])
    return -micros if integer.startswith("-") else micros
