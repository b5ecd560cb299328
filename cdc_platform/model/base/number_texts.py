"""Strict parsers of numbers: Python's own also accept spaces, `1_0` and digits of any script."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from cdc_platform.visible import shorten

_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NO_NUMBER: Final = re.compile(r"[+-]?(?:nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE)
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*", re.ASCII)
_MAX_CHARACTERS: Final = 100
_MAX_DIGITS: Final = 150_000
"""Maximum number of digits: PostgreSQL's limit; an exponent can require more than the memory."""


def whole_number(value: Any) -> int:
    """Return the integer in a number or text.

    Raises:
        ValueError: the value is not an integer.
    """
    if type(value) is int:
        return value
    if isinstance(value, Decimal):
        value = plain_digits(value).partition(".")[0] if value == value.to_integral_value() else None
    if not isinstance(value, str) or _WHOLE.fullmatch(value) is None:
        raise ValueError(f"{_excerpt(value)} is not a whole number")
    return int(value)


def plain_digits(number: Decimal) -> str:
    """Return a finite number without an exponent.

    Raises:
        ValueError: it would have more digits than any database's numbers.
    """
    if abs(number.adjusted()) > _MAX_DIGITS or -int(number.as_tuple().exponent) > _MAX_DIGITS:
        raise ValueError(f"{_excerpt(number)} has too many digits")
    return f"{number:f}"


def number_text(text: str) -> str:
    """Return the text itself if it is a number, or a word for NaN or an infinity.

    Raises:
        ValueError: it is neither.
    """
    if _DECIMAL.fullmatch(text) is None and _NO_NUMBER.fullmatch(text) is None:
        raise ValueError(f"{_excerpt(text)} is not a number")
    return text


def decimal_number(value: Any) -> Decimal:
    """Return the decimal in a number or text; a float gets its shortest digits.

    Raises:
        ValueError, TypeError: the value is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError(f"{_excerpt(value)} is not a number")
    try:
        return value if isinstance(value, Decimal) else Decimal(number_text(str(value)))
    except InvalidOperation:
        raise ValueError(f"{_excerpt(value)} is a number with too large an exponent") from None


def float_number(value: Any) -> float:
    """Return the float in a number or text.

    Raises:
        ValueError, TypeError: the value is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{_excerpt(value)} is not a number")
    return float(number_text(value) if isinstance(value, str) else value)


def hex_bytes(text: str) -> bytes:
    """Return the bytes of a text of hex digits without separators.

    Raises:
        ValueError: the text has other characters, or an odd number of digits.
    """
    if _HEX.fullmatch(text) is None:
        raise ValueError(f"{_excerpt(text)} is not a text of hex digit pairs")
    return bytes.fromhex(text)


def _excerpt(value: Any) -> str:
    return shorten(str(value) if isinstance(value, Decimal) else repr(value), _MAX_CHARACTERS)
