"""Timestamps: integer microseconds since the epoch, in UTC, and their text."""

import re
import time
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_MICROS: Final = "_micros"

DAY_S: Final = 86_400.0
"""Seconds of a day, for periods in settings."""
MICROS_PER_S: Final = 1_000_000
OrderPlace = tuple[int, str]
"""A moment in microseconds, and the text that orders records of that moment."""

_DAY_SECONDS: Final = int(DAY_S)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_BEYOND_MICROS: Final = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)
_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.(\d{1,9}))?(?:[Zz]|[+-]\d{2}:[0-5]\d)",
    re.ASCII,
)


def clock_micros() -> int:
    """Return the time of this machine's clock."""
    return time.time_ns() // 1000


def from_rfc3339(text: str) -> int:
    """Return the microseconds of an RFC 3339 text; digits beyond microseconds are cut off.

    Raises:
        ValueError: The text is not an RFC 3339 timestamp, has no offset, or one that leads out of the years.
    """
    if _RFC3339.fullmatch(text) is None:
        message = f"Not an RFC 3339 timestamp with an offset: {text!r}"
        raise ValueError(message)
    since = datetime.fromisoformat(text.upper()) - _EPOCH
    # Each record has such a text, and a division of timedeltas takes longer.
    micros = (since.days * _DAY_SECONDS + since.seconds) * MICROS_PER_S + since.microseconds
    if not is_moment(micros):
        message = f"Not an RFC 3339 timestamp of the years 1 to 9999 in UTC: {text!r}"
        raise ValueError(message)
    return micros


def is_between_micros(text: str) -> bool:
    """Return whether an RFC 3339 text has more than whole microseconds, which `from_rfc3339` cuts off."""
    return _BEYOND_MICROS.search(text) is not None


def to_nanosecond_text(text: str) -> str:
    """Return an RFC 3339 text in UTC with nine digits of a second, so that the order of texts is time's.

    Raises:
        ValueError: The text is not an RFC 3339 timestamp, or has no offset.
    """
    micros = to_rfc3339(from_rfc3339(text))
    match = _RFC3339.fullmatch(text)
    digits = (match.group(1) or "") if match is not None else ""
    return f"{micros.removesuffix('Z')}{digits[6:].ljust(3, '0')}Z"


def to_rfc3339(micros: int) -> str:
    """Return the RFC 3339 text in UTC, always with six digits of a second."""
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


FIRST_MICROS: Final = -62_135_596_800_000_000
LAST_MICROS: Final = 253_402_300_799_999_999
"""The first and the last moment that a datetime can be."""


def plain_fields(item: Any, *omitted: str) -> dict[str, Any]:
    """Return a dataclass's fields as plain values by name, without the omitted ones; tuples as lists.

    Of a field `NAME_micros` it returns `NAME`: the time as an RFC 3339 text, or None.
    """
    plain: dict[str, Any] = {}
    for name in (member.name for member in fields(item) if member.name not in omitted):
        value = getattr(item, name)
        if name.endswith(_MICROS):
            plain[name.removesuffix(_MICROS)] = to_rfc3339(value) if value is not None else None
        else:
            plain[name] = list(value) if isinstance(value, tuple) else value
    return plain


def is_moment(micros: int) -> bool:
    """Return whether a datetime can be the moment."""
    return FIRST_MICROS <= micros <= LAST_MICROS


def to_datetime(micros: int) -> datetime:
    """Return the aware datetime, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def from_datetime(moment: datetime) -> int:
    """Return the microseconds of an aware datetime.

    Raises:
        ValueError: The datetime has no time zone.
    """
    if moment.tzinfo is None:
        message = f"A datetime without a time zone is ambiguous: {moment!r}"
        raise ValueError(message)
    return (moment - _EPOCH) // _MICROSECOND
