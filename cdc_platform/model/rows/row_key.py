"""Keys as typed by people, and keys of the change log."""

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, Final

from cdc_platform.errors import RowNotFound
from cdc_platform.model.base.timestamps import from_rfc3339, to_nanosecond_text, to_rfc3339

NANOSECOND_TEXT: Final = "timestamp with nanoseconds"
"""Kind of a column that the lake stores as text because its timestamps have nanoseconds."""

_BOOLEANS: Final = {"true": True, "false": False}
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_WHOLE: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_BITS: Final = {"int": 32, "long": 64}


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key and its type in the lake, such as `long`, or `NANOSECOND_TEXT`."""

    name: str
    kind: str


@dataclass(frozen=True)
class RowKey:
    """A key of one table, in the source's JSON encoding."""

    columns: tuple[KeyColumn, ...]
    values: tuple[Any, ...]

    def to_json(self) -> str:
        """Return the key as the source writes it, with names in alphabetical order."""
        return _dump(self.to_fields(), compact=True)

    def to_fields(self) -> dict[str, Any]:
        """Return the key as JSON values, with names in alphabetical order."""
        return dict(sorted(self._pairs()))

    def spellings(self) -> tuple[str, ...]:
        """Return the most likely texts of the key in a log."""
        texts, numbers = self._pairs(), self._numbers()
        orders = (dict(sorted(texts)), dict(texts), dict(sorted(numbers)), dict(numbers))
        return tuple(
            {_dump(order, compact=compact): None for order, compact in product(orders, (True, False))}
        )

    def is_same(self, keys_json: str | None) -> bool:
        """Return whether a key of the log has the same values, in any notation."""
        members = json.loads(keys_json) if keys_json else {}
        if not isinstance(members, dict):
            return False
        return all(
            column.name in members and _plain(members[column.name], column.kind) == _plain(value, column.kind)
            for column, value in zip(self.columns, self.values, strict=True)
        )

    def _pairs(self) -> list[tuple[str, Any]]:
        return [(column.name, value) for column, value in zip(self.columns, self.values, strict=True)]

    def _numbers(self) -> list[tuple[str, Any]]:
        """Return the pairs as event sources write them, with whole numbers as JSON numbers."""
        return [
            (column.name, _plain(value, column.kind) if column.kind in _BITS else value)
            for column, value in zip(self.columns, self.values, strict=True)
        ]


def parse_key(table: str, columns: tuple[KeyColumn, ...], text: str) -> RowKey:
    """Parse a key that a person has typed.

    Args:
        table: the table, for the message.
        columns: its key columns, in their order.
        text: the value itself if the key has one column; otherwise a JSON object, or a JSON array in the
            order of the key.

    Raises:
        RowNotFound: the text is not a key of the table.
    """
    parts = _as_json(text)
    names = [column.name for column in columns]
    if isinstance(parts, Mapping) and sorted(parts) == sorted(names):
        return _key(table, columns, [parts[name] for name in names])
    if len(columns) == 1:
        return _key(table, columns, [text])
    if isinstance(parts, list) and len(parts) == len(names):
        return _key(table, columns, parts)
    example = ", ".join(f'"{name}": ...' for name in names)
    raise RowNotFound(
        f"A key of `{table}` has {len(names)} columns: give it as a JSON object {{{example}}}, or as a JSON "
        f"array in this order, instead of: {text}"
    )


def _key(table: str, columns: tuple[KeyColumn, ...], parts: list[Any]) -> RowKey:
    values = []
    for column, value in zip(columns, parts, strict=True):
        try:
            values.append(None if value is None else _encode(value, column.kind))
        except (ValueError, OverflowError, InvalidOperation) as error:
            value_text = value if isinstance(value, str) else json.dumps(value, default=str)
            message = f"Key column `{column.name}` of `{table}` is {column.kind}, and not: {value_text}"
            raise RowNotFound(message) from error
    return RowKey(columns, tuple(values))


def _encode(value: Any, kind: str) -> Any:
    """Return a value in the source's JSON encoding.

    Raises:
        ValueError, OverflowError, InvalidOperation: the value does not have the type.
    """
    if kind == "boolean" and isinstance(value, bool):
        return value
    encode = _encode_decimal if kind.startswith("decimal") else _ENCODERS.get(kind, _encode_text)
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not isinstance(value, str) and not (is_number and encode in _TAKE_NUMBERS):
        raise ValueError(value)
    return encode(str(value), kind)


def _encode_text(text: str, _kind: str) -> str:
    text.encode()  # raises for half a surrogate pair
    return text


def _encode_boolean(text: str, _kind: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(text)
    return _BOOLEANS[text.lower()]


def _encode_whole(text: str, kind: str) -> str:
    """Return a whole number as text, as in the source's JSON, whose numbers are not exact."""
    limit = 1 << (_BITS[kind] - 1)
    if not _WHOLE.fullmatch(text) or not -limit <= int(text) < limit:
        raise ValueError(text)
    return str(int(text))


def _encode_float(text: str, kind: str) -> float | str:
    """Return a number, or the source's text for a value that JSON lacks."""
    if text in _NOT_FINITE:
        return text
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    number = float(text) if kind == "double" else _nearest_float32(float(text))
    if str(number) in {"inf", "-inf"}:
        raise OverflowError(text)
    return number


def _encode_decimal(text: str, kind: str) -> str:
    sizes = _DECIMAL.fullmatch(kind)
    if sizes is None or not _NUMBER.fullmatch(text):
        raise ValueError(text)
    number, precision, scale = Decimal(text), int(sizes.group(1)), int(sizes.group(2))
    if number == 0:
        return "0"
    digits = number.as_tuple().digits
    last = int(number.as_tuple().exponent) + len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if number.adjusted() >= precision - scale or last < -scale:
        raise OverflowError(text)
    return f"{number:f}"


def _encode_day(text: str, _kind: str) -> str:
    if not _DAY.fullmatch(text):
        raise ValueError(text)
    return date.fromisoformat(text).isoformat()


def _encode_moment(text: str, _kind: str) -> str:
    to_rfc3339(from_rfc3339(text))  # an offset may move the time out of the valid years
    return text


_ENCODERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "boolean": _encode_boolean,
    "int": _encode_whole,
    "long": _encode_whole,
    "float": _encode_float,
    "double": _encode_float,
    "date": _encode_day,
    "timestamp": _encode_moment,
    "timestamptz": _encode_moment,
    "binary": lambda text, _: base64.b64encode(base64.b64decode(text, validate=True)).decode(),
    NANOSECOND_TEXT: lambda text, _: to_nanosecond_text(text),
}
_TAKE_NUMBERS: Final = (_encode_whole, _encode_float, _encode_decimal)


def _nearest_float32(number: float) -> float:
    """Return the double nearest to a FLOAT32, which is the value that the source sends."""
    nearest: float = struct.unpack("f", struct.pack("f", number))[0]
    return nearest


def _plain(value: Any, kind: str) -> Any:
    """Return a value that is equal for equal values."""
    try:
        if kind.startswith("decimal") and value is not None:
            return Decimal(value)
        if kind == NANOSECOND_TEXT and value is not None:
            return to_nanosecond_text(value)
        if kind.startswith("timestamp") and value is not None:
            return from_rfc3339(value)
        if kind in _BITS and isinstance(value, str):
            return int(value)
    except (ValueError, InvalidOperation):
        return value
    return value


def _as_json(text: str) -> Any:
    try:
        # Exact numbers: 1.9 must be no whole number, and 1e999 must differ from Infinity.
        return json.loads(text, parse_float=Decimal, parse_constant=str)
    except (ValueError, InvalidOperation, RecursionError):
        return None


def _dump(values: Mapping[str, Any], *, compact: bool) -> str:
    separators = (",", ":") if compact else (", ", ": ")
    return json.dumps(values, ensure_ascii=False, separators=separators)
