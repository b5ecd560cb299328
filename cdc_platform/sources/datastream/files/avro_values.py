"""Values of columns in Avro's storage form, without logical types, as texts of `SourceEvent`."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from cdc_platform.sources.datastream.values import moments
from cdc_platform.sources.datastream.values.json_text import compact, normal
from cdc_platform.sources.datastream.values.numbers import double, plain_integer, single
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform.sources.datastream.values.values import (
    Reader,
    array_reader,
    utc_moment,
    wide_offset_moment,
    wide_utc_moment,
)


def avro_reader(field: FieldType, *, is_wide: bool = False) -> Reader | None:
    """Return the reader of a stored value of a type; None if the value stays unchanged.

    Args:
        field: the type.
        is_wide: whether the result becomes text, so it may exceed the lake's type.
    """
    if field.kind is Kind.DECIMAL:
        return _decimal_reader(field, is_wide=is_wide)
    if field.kind is Kind.ARRAY and field.element is not None:
        element = avro_reader(field.element, is_wide=is_wide) or (lambda value: value)
        return array_reader(element, is_wide=is_wide)
    if field.kind in _MOMENTS:
        return _moment_reader(field, _MOMENTS[field.kind][is_wide])
    if field.kind is Kind.TIME and field.micros_per_unit != 1:
        unit = field.micros_per_unit
        return lambda value: moments.time_text(value * unit)
    return (_WIDE.get(field.kind) if is_wide else None) or _READERS.get(field.kind)


def _moment_reader(field: FieldType, text: Callable[[int], str]) -> Reader:
    unit = field.micros_per_unit

    def read(value: Any) -> str:
        if isinstance(value, dict):
            return text(value["date"] * moments.MICROS_PER_DAY + value["time"])
        return text(value * unit)

    return text if unit == 1 and field.kind is Kind.TIMESTAMP else read


def _decimal_reader(field: FieldType, *, is_wide: bool) -> Reader:
    precision, scale, bound = field.precision, field.scale, 10**field.precision

    def read(value: bytes) -> str:
        digits = int.from_bytes(value, signed=True)
        text = _decimal_text(digits, scale)
        if not (is_wide or -bound < digits < bound):
            raise ValueError(f"{text} has more digits than a decimal of {precision}, {scale} after the point")
        return text

    return read


def _decimal_text(unscaled: int, scale: int) -> str:
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _time_with_offset(value: Mapping[str, int]) -> str:
    return f"{moments.time_text(value['time'])}{moments.offset_of_millis(value['offset'])}"


def _interval(value: Mapping[str, int]) -> str:
    micros = value["hours"] * 3600 * moments.MICROS_PER_SECOND + value["micros"]
    return moments.interval_text(value["months"], micros)


_MOMENTS: Final[Mapping[Kind, tuple[Callable[[int], str], Callable[[int], str]]]] = {
    # in the form of the lake's type, and as text
    Kind.TIMESTAMP: (utc_moment, wide_utc_moment),
    Kind.DATETIME: (moments.moment_text, moments.far_moment_text),
}
_READERS: Final[Mapping[Kind, Reader]] = {
    Kind.LONG: plain_integer,
    Kind.FLOAT: single,
    Kind.DOUBLE: double,
    Kind.VARCHAR: lambda value: value["value"],
    Kind.BYTES: lambda value: b64encode(value).decode(),
    Kind.DATE: moments.day_text,
    Kind.TIMESTAMP_WITH_TIMEZONE: lambda value: utc_moment(value["timestamp"]),
    Kind.TIME: moments.time_text,
    Kind.TIME_WITH_TIMEZONE: _time_with_offset,
    Kind.TIME_INTERVAL: moments.time_text,
    Kind.INTERVAL: _interval,
    Kind.JSON: normal,
    Kind.OTHER: compact,
}
_WIDE: Final[Mapping[Kind, Reader]] = {
    Kind.DATE: moments.far_day_text,
    Kind.TIMESTAMP_WITH_TIMEZONE: lambda value: wide_offset_moment(
        value["timestamp"], moments.offset_of_millis(value["offset"])
    ),
}
