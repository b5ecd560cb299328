"""Parsers of texts that the platform wrote into the lake; a text of another shape is damage.

Only this module parses texts of the lake for `lake/` and `pipeline/`. `understanding` reports all other
errors while rows are read as damage.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar

import msgspec

from cdc_platform.errors import CdcError, LakeDamaged
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.timestamps import FIRST_MICROS, LAST_MICROS
from cdc_platform.visible import shorten

Stored = TypeVar("Stored")
StoredMicros = Annotated[int, msgspec.Meta(ge=FIRST_MICROS, le=LAST_MICROS)]
"""A moment in a stored text, in microseconds since the epoch."""


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
    try:
        stored = msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ValueError(f"another shape was expected ({error}), not {_excerpt(value)}") from error
    if not _has_all_of(msgspec.to_builtins(stored), value):
        raise ValueError(f"other fields were expected, not {_excerpt(value)}")
    return stored


def _has_all_of(stored: Any, value: Any) -> bool:
    """Return whether all fields of a value are stored: msgspec ignores those that a dataclass lacks."""
    if isinstance(value, dict):
        return value.keys() <= stored.keys() and all(
            _has_all_of(stored[name], item) for name, item in value.items()
        )
    if isinstance(value, list):
        return all(map(_has_all_of, stored, value))
    return True


def _excerpt(value: Any) -> str:
    return shorten(json.dumps(value), _MAX_CHARACTERS)
