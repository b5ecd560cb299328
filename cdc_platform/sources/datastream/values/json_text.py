"""Lossless JSON: all digits of numbers, and all members of objects in order."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, Final

import msgspec

from cdc_platform.sources.json_codec import parser_of

NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


class JsonNumber(str):
    """A number with a point or an exponent, as written; also NaN and the infinities."""

    __slots__ = ()


class JsonDocument(JsonNumber):
    """The raw JSON of an object, an array or a zero, without spaces."""

    __slots__ = ()


_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[ \t\n\r]+|-?(?:NaN|Infinity)', re.ASCII)
_ESCAPED: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)++"', re.ASCII)
"""Matches a whole string with an escape in JSON without spaces: none begins at the end of another string."""

parsed: Final = parser_of(JsonNumber, JsonNumber)
"""Parses a JSON text; numbers become integers of any size or `JsonNumber`. Raises ValueError."""


def compact(value: Any) -> str:
    """Return the JSON of a value without spaces, with keys in order and bytes in base64.

    Raises:
        ValueError: the value is nested too deeply, by some 490 levels.
    """
    try:
        return _write(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _write(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        is_number = isinstance(value, JsonNumber) and value not in NON_FINITE
        return str(value) if is_number else encode_basestring(value)
    if isinstance(value, Mapping):
        pairs = (f"{encode_basestring(name)}:{_write(item)}" for name, item in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, bytes):
        return encode_basestring(b64encode(value).decode())
    return json.dumps(value)


def normal(text: str) -> str:
    """Return the compact form of a JSON text; invalid or too deeply nested JSON stays unchanged."""
    try:
        parsed(text)
    except ValueError:
        return text
    return without_spaces(text)


def without_spaces(text: str) -> str:
    """Return a JSON text in the form of `compact`, but keep duplicate members and signed zeros."""
    try:
        plain = msgspec.json.format(text.encode(), indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # It has a NaN, half of a surrogate pair, or too many levels.
        return _TOKEN.sub(_compact_token, text)
    # Other escapes are written as `compact` writes them.
    is_rewritten = "\\u" in plain or "\\/" in plain
    return _ESCAPED.sub(_compact_token, plain) if is_rewritten else plain


def _compact_token(token: re.Match[str]) -> str:
    text = token[0]
    if text[0] != '"':
        return "" if text.isspace() else encode_basestring(text)
    return encode_basestring(json.loads(text)) if "\\" in text else text
