"""Values of events, from all of Debezium's encodings to the form of the change log."""

import base64
from collections.abc import Callable, Container, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.number_texts import decimal_number, hex_bytes, plain_digits, whole_number
from cdc_platform.model.schema.table_schema import ARRAY, DECIMAL, spark_type
from cdc_platform.sources.debezium.values.encodings import Encoding, EncodingKind, scale_fault
from cdc_platform.sources.debezium.values.moments import (
    ValueRefused,
    as_text,
    clock_text,
    days_text,
    duration_text,
    excerpt,
    finite,
    iso_date_text,
    iso_local_text,
    iso_time_text,
    json_text,
    local_text,
    plain_text,
    refuse,
    units_to_micros,
    zoned_text,
)

Read = Callable[[Any], Any]
"""Converts a JSON value that is not null to the change log's form."""

_EXACT: Final = 2**53
_INT64_BITS: Final = 63
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_ENDLESS: Final = {"POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
"""Infinite decimals, in the connector's notation."""
_WIDE: Final = Context(prec=20_000)
_MAX_LIST_CHARACTERS: Final = 50_000_000
"""Limit of Spark for a text. With exponents, few bytes can stand for many digits."""
_MAX_DIGITS: Final = 150_000
"""PostgreSQL's numbers have up to 147,455 digits in total; the connector's far fewer."""


def reader_of(encoding: Encoding) -> Read:
    """Return a reader for values of an encoding, which raises `ValueRefused` for other values."""
    fault = scale_fault(encoding)
    if fault is not None:
        return lambda _value: refuse(fault)
    reader = _reader(encoding)

    def checked(value: Any) -> Any:
        try:
            return reader(value)
        except ValueRefused:
            raise
        except MALFORMED as error:
            raise ValueRefused(
                f"is not a value of {encoding.source} as it arrives ({encoding.kind}): {excerpt(value)}"
            ) from error

    return checked


def fit_as_they_are(encoding: Encoding, values: Sequence[Any]) -> bool:
    """Return whether a reader would certainly return all values unchanged; they may be null."""
    is_single = encoding.column_type.code == "FLOAT32"
    if encoding.is_lenient or is_single or scale_fault(encoding) is not None:
        return False
    kinds = set(map(type, values)) - {type(None)}
    if encoding.kind is EncodingKind.INT and kinds == {int}:
        numbers: list[int] = [value for value in values if value is not None]
        return min(numbers) >= -_EXACT and max(numbers) <= _EXACT
    if encoding.kind is EncodingKind.TEXT and kinds == {str}:
        return not any(value is not None and value.startswith("[") for value in values)
    return not kinds or (encoding.kind is EncodingKind.BOOL and kinds == {bool})


def fits_its_type(encoding: Encoding) -> bool:
    """Return whether every value that `reader_of` accepts has the column's type.

    A schema block may state another encoding than the declared type: a boolean for an integer.
    """
    column_type, element = encoding.column_type, encoding.element
    if column_type.code == ARRAY:
        return encoding.kind is EncodingKind.LIST and element is not None and fits_its_type(element)
    return spark_type(column_type) == "string" or encoding.kind in _FITTING.get(column_type.code, ())


_FITTING: Final[Mapping[str, Container[EncodingKind]]] = {
    "BOOL": (EncodingKind.BOOL,),
    "INT64": (EncodingKind.INT,),
    "FLOAT32": (EncodingKind.FLOAT,),
    "FLOAT64": (EncodingKind.FLOAT, EncodingKind.INT),
    DECIMAL: (EncodingKind.UNSCALED, EncodingKind.DECIMAL_TEXT),
    "BYTES": (EncodingKind.BASE64, EncodingKind.BASE64_URL, EncodingKind.HEX),
    "DATE": (EncodingKind.DAYS, EncodingKind.ISO_DATE),
    "DATETIME": (EncodingKind.LOCAL, EncodingKind.ISO_LOCAL),
    "TIMESTAMP": (EncodingKind.ZONED,),
}
"""Kinds whose values have a type, by its code."""


def _reader(encoding: Encoding) -> Read:
    if encoding.kind is EncodingKind.LIST:
        return _list_reader(encoding)
    if encoding.kind in _SIMPLE:
        reader = _single if encoding.column_type.code == "FLOAT32" else _SIMPLE[encoding.kind]
        return (lambda value: as_text(reader(value))) if encoding.is_lenient else reader
    column_type = encoding.column_type
    reader = _with_digits(encoding)
    return _fitting(reader, column_type.annotation) if column_type.code == DECIMAL else reader


def _fitting(reader: Read, sizes: str | None) -> Read:
    """Return a reader that rejects a decimal with more digits than its column's type."""
    precision, scale = map(int, (sizes or "").split(","))

    def fitting(value: Any) -> str:
        text = str(reader(value))
        whole, _, fraction = text.lstrip("-").partition(".")
        if len(whole.lstrip("0")) > precision - scale or len(fraction.rstrip("0")) > scale:
            refuse(f"has more digits than decimal({precision},{scale}): {excerpt(text)}")
        return text

    return fitting


def _with_digits(encoding: Encoding) -> Read:
    digits, is_lenient = encoding.digits, encoding.is_lenient
    is_text = encoding.column_type.code != "DECIMAL"
    by_kind: dict[EncodingKind, Read] = {
        EncodingKind.UNSCALED: lambda value: _unscale(value, digits),
        EncodingKind.DECIMAL_TEXT: lambda value: _decimal_text(value, is_text=is_text),
        EncodingKind.BITS: lambda value: _bits(value, digits),
        EncodingKind.DAYS: lambda value: days_text(value, is_lenient=is_lenient),
        EncodingKind.TIME: lambda value: clock_text(units_to_micros(value, digits)),
        EncodingKind.LOCAL: lambda value: local_text(value, digits, is_lenient=is_lenient),
        EncodingKind.ISO_DATE: lambda value: iso_date_text(value, is_lenient=is_lenient),
        EncodingKind.ISO_LOCAL: lambda value: iso_local_text(value, is_lenient=is_lenient),
        EncodingKind.ZONED: lambda value: zoned_text(value, is_lenient=is_lenient),
        EncodingKind.DURATION: lambda value: duration_text(value, digits),
    }
    return by_kind[encoding.kind]


def _list_reader(encoding: Encoding) -> Read:
    if encoding.element is None:
        raise TypeError(encoding)
    reader = _reader(encoding.element)

    def read_all(value: list[Any]) -> list[Any]:
        if not isinstance(value, list):
            raise TypeError(value)
        items, characters = [], 0
        for item in value:
            items.append(None if item is None else reader(item))
            characters += len(items[-1]) if isinstance(items[-1], str) else 0
            if characters > _MAX_LIST_CHARACTERS:
                refuse(f"has more than {_MAX_LIST_CHARACTERS:,} characters in its elements")
        return items

    return read_all


_BEYOND_SINGLE: Final = 2.0**128 * (1 - 2.0**-25)
"""The smallest number that rounds to infinity as a 32-bit float."""


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _int(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    if -_EXACT <= value <= _EXACT:
        return value
    if value.bit_length() > _INT64_BITS and value != -(2**_INT64_BITS):
        raise OverflowError("more than 64 bits")
    return str(value)


def _float(value: Any) -> float | str:
    if isinstance(value, str):
        if value not in _NOT_FINITE:
            raise ValueError(value)
        return value
    if isinstance(value, bool):
        raise TypeError(value)
    return finite(value)


def _single(value: Any) -> float | str:
    number = _float(value)
    if isinstance(number, float) and abs(number) >= _BEYOND_SINGLE:
        raise OverflowError(value)
    return number


def _base64(value: str) -> str:
    return base64.b64encode(base64.b64decode(value, validate=True)).decode()


def _base64_url(value: str) -> str:
    padded_text = value + "=" * (-len(value) % 4)
    return base64.b64encode(base64.b64decode(padded_text, altchars=b"-_", validate=True)).decode()


def _whole(value: str) -> int:
    if len(value) > _MAX_DIGITS:
        raise ValueError("more digits than PostgreSQL's numbers have")
    return int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)


def _unscale(value: Any, scale: int) -> str:
    if not isinstance(value, str):  # the converter's `decimal.format` is NUMERIC
        return _decimal_text(value, is_text=False)
    return plain_digits(Decimal(_whole(value)).scaleb(-scale, _WIDE))


def _scale(value: Any) -> str:
    if isinstance(value, str):
        raise TypeError(value)
    return plain_digits(Decimal(_whole(value["value"])).scaleb(-whole_number(value["scale"]), _WIDE))


def _decimal_text(value: Any, *, is_text: bool) -> str:
    number = decimal_number(_ENDLESS.get(value, value))
    if number.is_finite():
        return plain_digits(number)
    if not is_text:
        refuse(f"is {value}, which no decimal of the lake can hold. Declare the column as `numeric`, a text")
    return "NaN" if number.is_nan() else str(number)


def _bits(value: str, length: int) -> str:
    octets = base64.b64decode(value, validate=True)
    if length < _EXACT_BITS and length > 8 * len(octets) + _MAX_PADDED_BITS:
        raise ValueError("far fewer bits than the column's type has")
    number = int.from_bytes(octets, "little")
    # The number of leading zeros of a value of varying length is unknown.
    return f"{number:b}".zfill(length) if length < _EXACT_BITS else (f"{number:b}" if number else "")


_EXACT_BITS: Final = 2**31 - 1
_MAX_PADDED_BITS: Final = 2**20
"""Zeros not backed by bytes of a value; an event of few bytes must not become a long text."""


_SIMPLE: Final[dict[EncodingKind, Read]] = {
    EncodingKind.BOOL: _bool,
    EncodingKind.INT: _int,
    EncodingKind.FLOAT: _float,
    EncodingKind.TEXT: plain_text,
    EncodingKind.BASE64: _base64,
    EncodingKind.BASE64_URL: _base64_url,
    EncodingKind.HEX: lambda value: base64.b64encode(hex_bytes(value)).decode(),
    EncodingKind.SCALED: _scale,
    EncodingKind.ISO_TIME: iso_time_text,
    EncodingKind.JSON: json_text,
}
