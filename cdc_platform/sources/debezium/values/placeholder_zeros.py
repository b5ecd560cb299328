"""Placeholders for NOT NULL columns of the row before a change: zeros, by encoding."""

import base64
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from cdc_platform.sources.debezium.values.encodings import Encoding, EncodingKind
from cdc_platform.sources.debezium.values.unavailable import is_known

_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_TEXTS: Final[Mapping[str, str]] = {
    # type: its zero, where that is not the empty text; fractions of a second are cut off
    "json": "{}",
    "jsonb": "{}",
    "hstore": "{}",
    "uuid": _NO_UUID,
    "timetz": "00:00:00Z",
    "interval": "P0Y0M0DT0H0M0S",
}
_FRACTION: Final = re.compile(r"\.0+(?=[ZS]?$)", re.ASCII)
_EMPTY_SHAPES: Final = frozenset(
    {
        "AQEAAAAAAAAAAAAAAAAAAAAAAAAA",  # a point at 0, 0
        "AQcAAAAAAAAA",  # a collection of no geometries
    },
)


def is_zero(encoding: Encoding, value: Any) -> bool:
    """Return whether the connector may have sent a value, which is not null, in place of a missing one."""
    try:
        return _JUDGES[encoding.kind](encoding, value)
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation):
        return False


def _is_number(_encoding: Encoding, value: Any) -> bool:
    return not isinstance(value, str) and bool(value == 0)


def _is_text(encoding: Encoding, value: Any) -> bool:
    if value == "":
        return True
    plain = _FRACTION.sub("", value)
    if is_known(encoding.source):
        return bool(plain == _TEXTS.get(encoding.source))
    return plain in _TEXTS.values()  # a domain has the zero of its base type


def _is_octets(_encoding: Encoding, value: Any) -> bool:
    return not any(base64.b64decode(value, validate=True)) if isinstance(value, str) else bool(value == 0)


def _is_moment(zero: str) -> Callable[[Encoding, Any], bool]:
    return lambda _encoding, value: bool(_FRACTION.sub("", value).removesuffix("Z") == zero)


_JUDGES: Final[Mapping[EncodingKind, Callable[[Encoding, Any], bool]]] = {
    **dict.fromkeys(
        (
            EncodingKind.BOOL,
            EncodingKind.INT,
            EncodingKind.FLOAT,
            EncodingKind.DAYS,
            EncodingKind.TIME,
            EncodingKind.LOCAL,
            EncodingKind.DURATION,
        ),
        _is_number,
    ),
    **dict.fromkeys(
        (EncodingKind.BASE64, EncodingKind.BASE64_URL, EncodingKind.HEX, EncodingKind.LIST),
        lambda _, value: value in ("", [], {}),
    ),
    EncodingKind.TEXT: _is_text,
    **dict.fromkeys((EncodingKind.UNSCALED, EncodingKind.BITS), _is_octets),
    EncodingKind.SCALED: lambda _, value: not any(base64.b64decode(value["value"], validate=True)),
    EncodingKind.DECIMAL_TEXT: lambda _, value: Decimal(value) == 0,
    EncodingKind.JSON: lambda _, value: all(not part or part in _EMPTY_SHAPES for part in value.values()),
    EncodingKind.ISO_DATE: _is_moment("1970-01-01"),
    EncodingKind.ISO_TIME: _is_moment("00:00:00"),
    **dict.fromkeys((EncodingKind.ISO_LOCAL, EncodingKind.ZONED), _is_moment("1970-01-01T00:00:00")),
}
