"""Values of columns in JSON, converted to the texts of `SourceEvent`.

The same readers convert the result of another reader to a declared type: declarations apply to both formats.
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from cdc_platform.model.base.number_texts import float_number, hex_bytes, number_text
from cdc_platform.model.schema.table_schema import MAX_INT64
from cdc_platform.sources.datastream.values import moments
from cdc_platform.sources.datastream.values.json_text import NON_FINITE, JsonNumber, compact, normal
from cdc_platform.sources.datastream.values.numbers import decimal_text, double, plain_integer, single
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform.visible import shorten

Reader = Callable[[Any], Any]
"""Converts one value, never NULL; raises ValueError or TypeError for other values."""

_MAX_CHARACTERS: Final = 100
"""Of a value in a message."""
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_NO_OFFSET: Final = ("+00:00", "-00:00")
_NUMBERS: Final = (Kind.INTEGER, Kind.LONG, Kind.NUMBER, Kind.DECIMAL)
"""Kinds whose values may be texts of digits."""
_JUDGES_ALL: Final = (Kind.STRING, Kind.JSON, Kind.DATE, Kind.DATETIME)


def json_reader(field: FieldType, *, is_wide: bool = False) -> Reader:
    """Return the reader of a JSON value of a type.

    Args:
        field: the type.
        is_wide: whether the result becomes text, so it may exceed the lake's type.
    """
    if field.kind is Kind.DECIMAL:
        return lambda value: decimal_text(value, field.precision, field.scale)
    if field.kind is Kind.BYTES:
        return lambda value: _base64(value, field.encoding)
    if field.kind is Kind.ARRAY and field.element is not None:
        return array_reader(json_reader(field.element, is_wide=is_wide), is_wide=is_wide)
    return (_WIDE.get(field.kind) if is_wide else None) or _READERS[field.kind]


def declared_reader(actual: FieldType, declaration: FieldType) -> Reader:
    """Return a reader that converts a value of the found type to a declared type."""
    if declaration.kind is Kind.JSON and actual.kind in (Kind.STRING, Kind.VARCHAR, Kind.JSON, Kind.OTHER):
        return normal
    if declaration.kind is Kind.JSON and actual.kind in _NUMBERS:
        return _json_number
    return json_reader(declaration)


def is_wide(declaration: FieldType | None) -> bool:
    """Return whether a declared type accepts any value, or checks the offset itself."""
    return declaration is not None and declaration.kind in _JUDGES_ALL


def utc_moment(micros: int) -> str:
    """Return the text of a TIMESTAMP."""
    return f"{moments.moment_text(micros)}Z"


def wide_utc_moment(micros: int) -> str:
    """Return the text of any timestamp; infinities are words."""
    text = moments.far_moment_text(micros)
    return text if text.endswith(moments.INFINITY) else f"{text}Z"


def wide_offset_moment(micros: int, offset: str) -> str:
    """Return the text of any timestamp in its local time, with its offset."""
    minutes = int(offset[1:3]) * 60 + int(offset[4:6])
    shift = (-minutes if offset[0] == "-" else minutes) * 60 * moments.MICROS_PER_SECOND
    text = moments.far_moment_text(micros + shift)
    return text if text.endswith(moments.INFINITY) else f"{text}{offset}"


def array_reader(element: Reader, *, is_wide: bool) -> Reader:
    """Return the reader of an array, plain or in Datastream's records of elements and nested arrays."""

    def read(value: Any) -> list[Any]:
        return [item(each) for each in _elements(value)]

    def item(value: Any) -> Any:
        is_nested = isinstance(value, list) or (
            isinstance(value, Mapping) and value.get("nestedArray") is not None
        )
        if is_nested and not is_wide:
            raise ValueError("it is an array of arrays; declare the column as JSON to keep it")
        if is_nested:
            return read(value)
        plain = value["elementValue"] if is_element(value) else value
        return None if plain is None else element(plain)

    return read


def is_element(value: Any) -> bool:
    """Return whether a value is Datastream's record of an array's element or of a nested array."""
    return isinstance(value, Mapping) and value.keys() == {"nestedArray", "elementValue"}


def _elements(value: Any) -> list[Any]:
    if isinstance(value, Mapping) and "nestedArray" in value:
        return value["nestedArray"] or []
    if not isinstance(value, list):
        raise TypeError(f"{_excerpt(value)} is not an array")
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    value_as_bool = _BOOLEANS.get(str(value).lower())
    if value_as_bool is None:
        raise ValueError(f"{_excerpt(value)} is neither true nor false")
    return value_as_bool


def _integer(value: Any) -> int | str:
    if type(value) is not int:
        value = _whole(value)
    if not -MAX_INT64 - 1 <= value <= MAX_INT64:
        raise ValueError(f"{value} is beyond an integer of 64 bits")
    return plain_integer(value)


def _whole(value: Any) -> int:
    """Return a whole number from a text, a boolean, or a number with a point."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str | float):
        raise TypeError(f"{_excerpt(value)} is not an integer")
    return int(decimal_text(value, 40, 0))


def _float(value: Any) -> float:
    number = float_number(value)
    if math.isinf(number) and "inf" not in str(value).lower():
        raise ValueError(f"{value} is beyond a float of 64 bits")
    return number


def _number(value: Any) -> str:
    if type(value) is JsonNumber:
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{_excerpt(value)} is not a number")
    return number_text(str(value))


def _json_number(value: Any) -> str:
    """Return a number as JSON, for any size and type."""
    text = str(value)
    return compact(text) if text in NON_FINITE else text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    return compact(value)


def _varchar(value: Any) -> str | None:
    return value.get("value") if isinstance(value, Mapping) else _text(value)


def _required_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{_excerpt(value)} is not text")
    return value


def _base64(value: Any, encoding: str) -> str:
    r"""Return bytes in base64; without a declared encoding, `\x` marks hex digits."""
    text = _required_text(value)
    if encoding == "hex" or (not encoding and text.startswith("\\x")):
        return b64encode(hex_bytes(text.removeprefix("\\x").removeprefix("0x"))).decode()
    try:
        return b64encode(b64decode(text, validate=True)).decode()
    except ValueError:
        raise ValueError(
            f"{_excerpt(value)} is not base64; declare the column as BYTES(hex) or STRING"
        ) from None


def _wall_clock(value: Any, kind: Kind) -> int:
    """Return the microseconds of a text with no UTC offset other than zero."""
    text = _required_text(value)
    if moments.offset_text(text) not in _NO_OFFSET:
        raise ValueError(
            f"{text!r} has an offset from UTC, which a {kind} cannot keep; declare the column as TIMESTAMP, "
            "which keeps the moment in UTC, or as STRING"
        )
    return moments.moment_micros(text)


def _day(value: Any) -> str:
    text = moments.moment_text(_wall_clock(value, Kind.DATE))
    if text[10:] != moments.MIDNIGHT and text != moments.LAST_MOMENT:
        raise ValueError(f"{value!r} has a time of day, which a DATE would lose")
    return text[:10]


def _wide_day(value: Any) -> str:
    return moments.far_moment_text(moments.moment_micros(_required_text(value))).partition("T")[0]


def _wide_offset(value: Any) -> str:
    text = _required_text(value)
    return wide_offset_moment(moments.moment_micros(text), moments.offset_text(text))


def _wide_moment(value: Any) -> str:
    """Return any timestamp in UTC; keep an offset, for a declared type that rejects it."""
    text = _required_text(value)
    if moments.offset_text(text) in _NO_OFFSET:
        return wide_utc_moment(moments.moment_micros(text))
    return _wide_offset(text)


def _time_of_day(value: Any) -> str:
    micros, offset = moments.time_micros(_required_text(value))
    if offset not in (None, *_NO_OFFSET):
        raise ValueError(
            f"{value!r} has an offset from UTC, which a TIME cannot keep; declare the column as STRING"
        )
    return moments.time_text(micros)


def _time_with_offset(value: Any) -> str:
    micros, offset = moments.time_micros(_required_text(value))
    return f"{moments.time_text(micros)}{offset or '+00:00'}"


def _time_interval(value: Any) -> str:
    return moments.time_text(value) if type(value) is int else _time_of_day(value)


def _interval(value: Any) -> str:
    """Return an interval as ISO 8601; a time interval stays a time."""
    text = _required_text(value)
    return moments.interval_text(*moments.interval_parts(text)) if "P" in text else _time_of_day(text)


def _excerpt(value: Any) -> str:
    """Return a value in the form for messages."""
    text = compact(value) if not isinstance(value, JsonNumber) or value in NON_FINITE else str(value)
    return shorten(text, _MAX_CHARACTERS)


_READERS: Final[Mapping[Kind, Reader]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.LONG: _integer,
    Kind.FLOAT: lambda value: single(_float(value)),
    Kind.DOUBLE: lambda value: double(_float(value)),
    Kind.NUMBER: _number,
    Kind.STRING: _text,
    Kind.VARCHAR: _varchar,
    Kind.DATE: _day,
    Kind.DATETIME: lambda value: moments.moment_text(_wall_clock(value, Kind.DATETIME)),
    Kind.TIMESTAMP: lambda value: utc_moment(moments.moment_micros(_required_text(value))),
    Kind.TIMESTAMP_WITH_TIMEZONE: lambda value: utc_moment(moments.moment_micros(_required_text(value))),
    Kind.TIME: _time_of_day,
    Kind.TIME_WITH_TIMEZONE: _time_with_offset,
    Kind.TIME_INTERVAL: _time_interval,
    Kind.INTERVAL: _interval,
    Kind.JSON: compact,
    Kind.OTHER: compact,
    Kind.UNKNOWN: _text,
}
_WIDE: Final[Mapping[Kind, Reader]] = {
    Kind.DATE: _wide_day,
    Kind.DATETIME: lambda value: moments.far_moment_text(_wall_clock(value, Kind.DATETIME)),
    Kind.TIMESTAMP: _wide_moment,
    Kind.TIMESTAMP_WITH_TIMEZONE: _wide_offset,
}
_PLAIN: Final[Mapping[Reader, frozenset[type]]] = {
    _boolean: frozenset({bool}),
    _integer: frozenset({int}),
    _text: frozenset({str}),
    _varchar: frozenset({str}),
}
_NULL: Final = frozenset({type(None)})


def plain_types(reader: Reader) -> frozenset[type]:
    """Return the types, as returned by `types_of`, whose values a reader leaves unchanged."""
    return _PLAIN.get(reader, _NULL) | _NULL
