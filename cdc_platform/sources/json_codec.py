"""JSON by msgspec, several times as fast as the standard library, which handles what msgspec rejects."""

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

_WRITER: Final = msgspec.json.Encoder(enc_hook=str)
_SORTING_WRITER: Final = msgspec.json.Encoder(enc_hook=str, order="sorted")
_SLOW_WRITER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_SLOW_SORTING_WRITER: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str
)
_REFUSALS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)

_MAX_DIGITS: Final = sys.get_int_max_str_digits()
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Parser = Callable[[str | bytes], Any]
NULL: Final = msgspec.Raw(b"null")


def parser_of(number: Callable[[str], Any], constant: Callable[[str], Any]) -> Parser:
    """Return a parser of JSON that converts whole numbers to integers of any size.

    Args:
        number: converts the text of a number with a point or an exponent.
        constant: converts `NaN`, `Infinity` and `-Infinity`, which are not valid JSON.

    The parser raises ValueError for invalid JSON, and for bytes that are not UTF-8.
    """
    fast = msgspec.json.Decoder(float_hook=number).decode
    slow = json.JSONDecoder(parse_float=number, parse_constant=constant).decode

    def parse(text: str | bytes) -> Any:
        try:
            return fast(text)
        except (*_REFUSALS, ArithmeticError):
            pass
        try:
            return slow(text_of_bytes(text) if isinstance(text, bytes) else text)
        except (json.JSONDecodeError, NotUnicode):
            raise
        except RecursionError:
            raise ValueError("It is nested too deeply") from None
        except ArithmeticError:
            raise ValueError("It has a number with too large an exponent") from None
        except ValueError:
            # Python has one more limit: the number of digits that it converts.
            raise ValueError(f"It has a number of more than {_MAX_DIGITS} digits") from None

    return parse


class NotUnicode(ValueError):
    """Octets are not UTF-8; the message contains the place."""


def text_of_bytes(octets: bytes) -> str:
    """Decode a UTF-8 text.

    Raises:
        NotUnicode: the octets are not UTF-8.
    """
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} is {octets[error.start]:#04x}"
        raise NotUnicode(f"It is not UTF-8: {place}") from None


def write(value: Any) -> str:
    """Return the JSON of a value without spaces; values that JSON lacks, such as decimals, are texts.

    Floats have their shortest form (`1e16`), unlike in the standard library (`1e+16`), so this function is
    not suitable for texts that are compared with others, such as keys.
    """
    try:
        return _WRITER.encode(value).decode()
    except UnicodeEncodeError:
        return _SLOW_WRITER.encode(msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value)


def write_lines(values: Sequence[Any]) -> list[str]:
    """Return the JSON of each value, as `write` does.

    Raises:
        UnicodeEncodeError: a text is not Unicode.
    """
    return _WRITER.encode_lines(values).decode().split("\n")[:-1]


def write_objects(
    names: Sequence[str],
    columns: Sequence[Sequence[Any]],
    count: int,
    left_out: Sequence[Collection[str]] = (),
) -> Sequence[str]:
    """Return the JSON objects of rows, as `write` does.

    Args:
        names: the names of the members, all different.
        columns: the values of each member.
        count: number of rows.
        left_out: names of the members that each object lacks; empty if none lacks one.
    """
    make = _row_class(tuple(names)) if names and count >= _MIN_ROWS and not left_out else None
    rows: Sequence[Any] = rows_of(names, columns, count) if make is None else list(map(make, *columns))
    for row, names_left_out in zip(rows if left_out else (), left_out, strict=True):
        for name in names_left_out:
            row.pop(name, None)
    try:
        return write_lines(rows)
    except UnicodeEncodeError:
        return list(map(write, rows))


def rows_of(
    names: Sequence[str], columns: Sequence[Sequence[Any]], count: int
) -> Sequence[Mapping[str, Any]]:
    """Return rows as mappings; they may have no member."""
    if not names:
        return [{}] * count
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


_MIN_ROWS: Final = 8
"""Number of rows that are worth a class: making one takes as long as writing hundreds of mappings."""


@lru_cache(maxsize=256)
def _row_class(names: tuple[str, ...]) -> Callable[..., Any] | None:
    """Return a class of rows, which are written several times as fast as mappings; None for odd names."""
    fields = [(f"member_{number}", Any) for number in range(len(names))]
    names_by_field = {field: name for (field, _), name in zip(fields, names, strict=True)}
    try:
        return msgspec.defstruct("Row", fields, rename=names_by_field, gc=False)
    except ValueError:
        return None


def write_sorted_lines(values: Sequence[Any]) -> list[str]:
    """Return the same with the members of objects sorted by name."""
    return _SORTING_WRITER.encode_lines(values).decode().split("\n")[:-1]


def write_sorted(value: Any) -> str:
    """Return the same with the members of objects sorted by name."""
    try:
        return _SORTING_WRITER.encode(value).decode()
    except UnicodeEncodeError:
        return _SLOW_SORTING_WRITER.encode(value)


def read_members(text: str) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object, with values in their original text."""
    try:
        return _MEMBERS.decode(text)
    except _REFUSALS:
        return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in json.loads(text).items()}
