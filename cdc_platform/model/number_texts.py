"""Numbers from texts, by their grammar: Python's parsers also take spaces, `1_0` and digits of any script."""

import re
from decimal import Decimal
from typing import Any, Final

_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NO_NUMBER: Final = re.compile(r"[+-]?(?:nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE)
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*", re.ASCII)
_MOST_SHOWN: Final = 100


def whole_number(value: Any) -> int:
    """Return the integer that a value is, be it a number or a text.

    Raises:
        ValueError: It is none.
    """
    if type(value) is int:
        return value
    if not isinstance(value, str) or _WHOLE.fullmatch(value) is None:
        raise ValueError(f"{_shown(value)} is no whole number")
    return int(value)


def number_text(text: str) -> str:
    """Return a text that is a number, or one of the words for NaN and the infinities.

    Raises:
        ValueError: It is none of these.
    """
    if _DECIMAL.fullmatch(text) is None and _NO_NUMBER.fullmatch(text) is None:
        raise ValueError(f"{_shown(text)} is no number")
    return text


def decimal_number(value: Any) -> Decimal:
    """Return the decimal that a value is, be it a number or a text; a float has its shortest digits.

    Raises:
        ValueError, TypeError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError(f"{_shown(value)} is no number")
    return value if isinstance(value, Decimal) else Decimal(number_text(str(value)))


def float_number(value: Any) -> float:
    """Return the float that a value is, be it a number or a text.

    Raises:
        ValueError, TypeError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{_shown(value)} is no number")
    return float(number_text(value) if isinstance(value, str) else value)


def hex_bytes(text: str) -> bytes:
    """Return the bytes whose hex digits a text has, without anything between them.

    Raises:
        ValueError: It has others.
    """
    if _HEX.fullmatch(text) is None:
        raise ValueError(f"{_shown(text)} is not in hex digits")
    return bytes.fromhex(text)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
