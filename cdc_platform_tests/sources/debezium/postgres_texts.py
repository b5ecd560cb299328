"""PostgreSQL's own texts of values, as the change log should have them: read apart from the decoder."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_SPECIAL: Final = {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}
_HSTORE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|(NULL))')
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)')
_LENGTH: Final = re.compile(r"\(.*?\)")


def canonical(type_name: str, text: str | None) -> Any:
    """Return the value of a text of a type."""
    if text is None:
        return None
    if type_name.endswith("[]"):
        return [canonical(type_name[:-2], item) for item in _elements(text)]
    return _READERS.get(_LENGTH.sub("", type_name).strip(), str)(text)


def _elements(text: str) -> list[str | None]:
    elements: list[str | None] = []
    for match in _TOKEN.finditer(text):
        quoted, plain = match.groups()
        if plain is None:
            elements.append(re.sub(r"\\(.)", r"\1", quoted))
        else:
            elements.append(None if plain == "NULL" else plain)
    return elements


def _whole(text: str) -> int | str:
    return int(text) if abs(int(text)) <= 2**53 else text


def _float(text: str) -> float | str:
    return _SPECIAL.get(text) or float(text)


def _moment(text: str) -> str:
    day, _, clock = text.removesuffix("+00").partition(" ")
    return f"{day}T{_clock(clock)}" if clock else text


def _clock(text: str) -> str:
    seconds, _, fraction = text.partition(".")
    return f"{seconds}.{fraction.ljust(6, '0')}"


def _hstore(text: str) -> str:
    pairs = {key: None if null else value for key, value, null in _HSTORE.findall(text)}
    return json.dumps(pairs, separators=(",", ":"), ensure_ascii=False)


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "boolean": lambda text: text in ("t", "true"),
    "smallint": _whole,
    "integer": _whole,
    "bigint": _whole,
    "real": _float,
    "double precision": _float,
    "money": lambda text: text.replace("$", "").replace(",", ""),
    "bytea": lambda text: base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode(),
    "time without time zone": _clock,
    "time  without time zone": _clock,
    "timestamp without time zone": _moment,
    "timestamp  without time zone": _moment,
    "timestamp with time zone": lambda text: f"{_moment(text)}Z" if text[0].isdigit() else text,
    "timestamp  with time zone": lambda text: f"{_moment(text)}Z",
    "hstore": _hstore,
}
