"""Conversion of rows to Arrow: a row that Arrow cannot hold is replaced, and affects no other row."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

Row = TypeVar("Row")
Part = TypeVar("Part")


class Divisible(Protocol):
    """A sequence, or columns of equal length, of which slices have the same type."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: slice, /) -> Any: ...


Items = TypeVar("Items", bound=Divisible)

MAX_CHARACTERS: Final = 1_000
"""Maximum number of characters of a reason or a name that is kept unchanged."""
MAX_TEXT_CHARACTERS: Final = 1_000_000
"""Maximum number of characters of the text of an unusable event."""
NOT_UNICODE: Final = "has a text that is not Unicode (half of a surrogate pair)"
_LABELS: Final = {"record_sequence": "the identity of the event"}
_INT64: Final = range(-(2**63), 2**63)
UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""Errors of Arrow about values that it cannot hold."""


def by_halves(
    build: Callable[[Items], Part],
    items: Items,
    replacement_of: Callable[[Items, Exception], Part],
    errors: tuple[type[Exception], ...],
) -> Iterator[Part]:
    """Yield what ``build`` returns for items, in order: one part, unless some items cause an error.

    ``replacement_of`` returns the part for a sequence of one item that causes one of the errors.
    """
    stack = [items]
    while stack:
        part = stack.pop()
        try:
            batch = build(part)
        except errors as error:
            if len(part) > 1:
                middle = len(part) // 2
                stack += (part[middle:], part[:middle])
                continue
            batch = replacement_of(part, error)
        yield batch


def sound_batches(
    build: Callable[[Sequence[Row]], pa.RecordBatch],
    rows: Sequence[Row],
    replacement_of: Callable[[Row, Exception], Row],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of rows, in order: one, unless Arrow rejects a row.

    ``build`` builds a batch of rows, and ``replacement_of`` returns a row with safe values for one that Arrow
    rejects.
    """

    def build_replaced(row: Sequence[Row], error: Exception) -> pa.RecordBatch:
        return build([replacement_of(row[0], error)])

    yield from by_halves(build, rows, build_replaced, UNFIT)


def unfit_reason(values: Mapping[str, Any], error: Exception) -> str:
    """Return the reason why Arrow rejects a row with these values."""
    texts = [name for name in (_half_in(*item) for item in values.items()) if name is not None]
    numbers = [name for name, value in values.items() if isinstance(value, int) and value not in _INT64]
    problems = [
        *(f"{_LABELS.get(name, f'`{name}`')} {NOT_UNICODE}" for name in texts),
        *(f"`{name}` is a number beyond 64 bits" for name in numbers),
    ]
    return safe_text("; ".join(problems) or f"The event cannot be stored: {error}")


def half_at(value: Any, path: str) -> str | None:
    """Return the escaped path of the first text or name in a value that is not Unicode, else None.

    Args:
        value: a JSON value.
        path: path of the value; the names of members are added after a dot.
    """
    parts = [(path, value)]
    while parts:
        place, part = parts.pop()
        if isinstance(part, str) and not is_unicode(part):
            return escape(place)
        if isinstance(part, Mapping):
            members = [(f"{place}.{name}" if place else name, item) for name, item in part.items()]
            half = next((inner for inner, _ in members if not is_unicode(inner)), None)
            if half is not None:
                return escape(half)
            parts += reversed(members)
        elif isinstance(part, list | tuple):
            parts += [(place, item) for item in reversed(part)]
    return None


def _half_in(name: str, value: Any) -> str | None:
    """Return the name of a value, or the path in its JSON, that is not Unicode, else None."""
    if half_at(value, name) is None:
        return None
    try:
        return half_at(json.loads(value), name) or name
    except (ValueError, TypeError, RecursionError):
        return name


def is_unicode(text: str) -> bool:
    """Return whether a text has no halves of surrogate pairs."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def safe_text(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Return an escaped text; a longer one is truncated and gets its digest."""
    safe = escape(text)
    if len(safe) <= max_characters:
        return safe
    digest = sha256(safe.encode()).hexdigest()
    return f"{safe[:max_characters]}... ({len(text)} characters, sha256 {digest})"


def escape(text: str) -> str:
    """Return a text with everything escaped that is not Unicode, as in JSON."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def safe_value(value: Any) -> Any:
    """Return a value that Arrow can hold: texts are safe, numbers beyond 64 bits NULL."""
    if isinstance(value, str):
        return safe_text(value)
    return None if isinstance(value, int) and value not in _INT64 else value
