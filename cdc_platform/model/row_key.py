"""Keys that people type, and the keys of the change log."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, Final

from cdc_platform.errors import RowNotFound
from cdc_platform.model.timestamps import from_rfc3339

_BOOLEANS: Final = {"true": True, "false": False}
_NUMBERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    # A whole number is a text in the source's JSON, since JSON's own are not exact.
    "int": lambda value: str(int(value)),
    "long": lambda value: str(int(value)),
    "float": float,
    "double": float,
}


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key and its type in the lake, such as `long`."""

    name: str
    kind: str


@dataclass(frozen=True)
class RowKey:
    """A key of one table, in the source's JSON encoding."""

    columns: tuple[KeyColumn, ...]
    values: tuple[Any, ...]

    def to_json(self) -> str:
        """Return the key as the source writes it: names in alphabetical order."""
        return _dump(dict(sorted(self._pairs())), compact=True)

    def spellings(self) -> tuple[str, ...]:
        """Return the texts in which a log most likely has the key."""
        orders = (dict(sorted(self._pairs())), dict(self._pairs()))
        return tuple(
            {_dump(order, compact=compact): None for order, compact in product(orders, (True, False))}
        )

    def is_same(self, keys_json: str | None) -> bool:
        """Whether a key of the log has the same values, however they are written."""
        found = json.loads(keys_json) if keys_json else {}
        if not isinstance(found, dict):
            return False
        return all(
            column.name in found and _plain(found[column.name], column.kind) == _plain(value, column.kind)
            for column, value in zip(self.columns, self.values, strict=True)
        )

    def _pairs(self) -> list[tuple[str, Any]]:
        return [(column.name, value) for column, value in zip(self.columns, self.values, strict=True)]


def parse_key(table: str, columns: tuple[KeyColumn, ...], text: str) -> RowKey:
    """Return the key that somebody has typed.

    Args:
        table: the table, for the message.
        columns: its key columns, in their order.
        text: the value itself where the key has one column; else a JSON object, or a JSON array in the
            order of the key.

    Raises:
        RowNotFound: the text is no key of the table.
    """
    given = _as_json(text)
    names = [column.name for column in columns]
    if isinstance(given, Mapping) and sorted(given) == sorted(names):
        return _key(table, columns, [given[name] for name in names])
    if len(columns) == 1:
        return _key(table, columns, [text])
    if isinstance(given, list) and len(given) == len(names):
        return _key(table, columns, given)
    example = ", ".join(f'"{name}": ...' for name in names)
    raise RowNotFound(
        f"A key of `{table}` has {len(names)} columns: give it as a JSON object {{{example}}}, or as a JSON "
        f"array in this order, instead of: {text}"
    )


def _key(table: str, columns: tuple[KeyColumn, ...], given: list[Any]) -> RowKey:
    values = []
    for column, value in zip(columns, given, strict=True):
        encoded = _encode(value, column.kind)
        if encoded is None and value is not None:
            raise RowNotFound(f"Key column `{column.name}` of `{table}` is {column.kind}, and not: {value}")
        values.append(encoded)
    return RowKey(columns, tuple(values))


def _encode(value: Any, kind: str) -> Any:
    """Return a value in the source's JSON encoding, None when it cannot be one."""
    if value is None or kind == "boolean":
        return _BOOLEANS.get(str(value).lower())
    try:
        if kind in _NUMBERS:
            return _NUMBERS[kind](value)
        if kind.startswith("decimal"):
            return f"{Decimal(str(value)):f}"
    except (ValueError, InvalidOperation):
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _plain(value: Any, kind: str) -> Any:
    """Return what is equal for equal values."""
    try:
        if kind.startswith("decimal") and value is not None:
            return Decimal(value)
        if kind.startswith("timestamp") and value is not None:
            return from_rfc3339(value)
    except (ValueError, InvalidOperation):
        return value
    return value


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _dump(values: Mapping[str, Any], *, compact: bool) -> str:
    separators = (",", ":") if compact else (", ", ": ")
    return json.dumps(values, ensure_ascii=False, separators=separators)
