"""Parsers of texts that the platform wrote into the lake; a text of another shape is damage.

Only this module parses texts of the lake for `lake/` and `pipeline/`. `understanding` reports all other
errors while rows are read as damage.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from cdc_platform.errors import CdcError, LakeDamaged
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.visible import shorten

Stored = TypeVar("Stored")


MISUNDERSTOOD: Final = (*MALFORMED, StopIteration)
"""Exceptions that reading a row of another shape than the platform's may raise."""
_MAX_CHARACTERS: Final = 300


@contextmanager
def understanding(table_name: str, row: str = "") -> Iterator[None]:
    """Raise errors while a row of a table, or an entry of its summaries, is read as damage of the table.

    Raises:
        LakeDamaged: the platform did not write a row or a summary.
    """
    try:
        yield
    except CdcError:
        raise
    except MISUNDERSTOOD as error:
        raise damage_of(error, table_name, row) from error


def damage_of(error: Exception, table_name: str, row: str = "") -> LakeDamaged:
    """Return the damage that an error of `MISUNDERSTOOD` shows; see `understanding`."""
    problem = _line(f"{type(error).__name__}: {error}")
    place = f"its table `{table_name}`" + (f", {_line(row)}" if row else "")
    return LakeDamaged(place, f"what it holds is not the platform's ({problem})")


def _line(text: str) -> str:
    return shorten(" ".join(text.split()), _MAX_CHARACTERS)


def read_stored(parse: Callable[[str], Stored], text: str | None, table_name: str, row: str) -> Stored:
    """Return a parsed text of the lake.

    Raises:
        LakeDamaged: the platform did not write the text; the error names the table and the row.
    """
    with understanding(table_name, row):
        return parse(as_shape(text, str))


def parse_stored(text: str, shape: type[Stored]) -> Stored:
    """Return the JSON of a text as a type, such as `dict[str, int]` or a dataclass; see `as_shape`.

    Raises:
        ValueError, RecursionError: the text is not JSON, or has another shape.
    """
    return as_shape(json.loads(text), shape)


def as_shape(value: Any, shape: type[Stored]) -> Stored:
    """Return a value of JSON as a type.

    Args:
        value: what `json.loads` returns.
        shape: one of JSON's own types, a collection of types, a union, or a dataclass, of whose fields those
            with a default may be missing.

    Raises:
        ValueError: the value has another shape.
    """
    stored: Stored = _as_shape(value, shape)
    return stored


def _as_shape(value: Any, shape: Any) -> Any:
    if shape is Any:
        return value
    origin, parts = get_origin(shape) or shape, get_args(shape)
    if origin in (UnionType, Union):
        return _as_first(value, parts)
    if is_dataclass(shape):
        return _as_dataclass(value, shape)
    if origin in _LISTS and isinstance(value, list):
        return origin(_items(value, origin, parts))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {name: _as_shape(item, parts[1]) for name, item in value.items()} if parts else value
    if origin not in _PLAIN or type(value) not in _PLAIN[origin]:
        raise ValueError(f"{str(shape).removeprefix('typing.')} was expected, not {_excerpt(value)}")
    return value


_LISTS: Final = (list, tuple, set, frozenset)
_PLAIN: Final[dict[Any, tuple[Any, ...]]] = {
    # A type, and what JSON has for it; `True` is not an integer.
    **{kind: (kind,) for kind in (str, int, bool, type(None))},
    float: (float, int),
}


def _as_first(value: Any, parts: tuple[Any, ...]) -> Any:
    """Return a value as the first type of a union that fits."""
    for part in parts[:-1]:
        try:
            return _as_shape(value, part)
        except ValueError:
            continue
    return _as_shape(value, parts[-1])


def _items(values: list[Any], origin: Any, parts: tuple[Any, ...]) -> list[Any]:
    if not parts:
        return values
    if origin is not tuple or parts[-1] is Ellipsis:
        return [_as_shape(value, parts[0]) for value in values]
    if len(values) != len(parts):
        raise ValueError(f"{len(parts)} values were expected, not {_excerpt(values)}")
    return [_as_shape(value, part) for value, part in zip(values, parts, strict=True)]


def _as_dataclass(value: Any, shape: Any) -> Any:
    types = _types_of(shape)
    if not isinstance(value, dict) or not value.keys() <= types.keys():
        raise ValueError(f"the fields {', '.join(types)} were expected, not {_excerpt(value)}")
    absent_fields = [name for name in _required_fields(shape) if name not in value]
    if absent_fields:
        raise ValueError(f"the field `{absent_fields[0]}` is missing in {_excerpt(value)}")
    return shape(**{name: _as_shape(item, types[name]) for name, item in value.items()})


@lru_cache
def _types_of(shape: Any) -> Mapping[str, Any]:
    return get_type_hints(shape)


@lru_cache
def _required_fields(shape: Any) -> tuple[str, ...]:
    return tuple(
        member.name
        for member in fields(shape)
        if member.default is MISSING and member.default_factory is MISSING
    )


def _excerpt(value: Any) -> str:
    text = repr(value) if not isinstance(value, dict | list) else json.dumps(value)
    return shorten(text, _MAX_CHARACTERS)
