"""Mods of messages as JSON texts, decoded from their bytes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Final

from cdc_platform.sources.spanner.client.wire import (
    BOOL_TAG,
    CONTINUES,
    LIST_TAG,
    NUMBER_TAG,
    boolean,
    integer,
    items,
    number,
    text,
)
from cdc_platform.sources.spanner.stream.record_rows import ModTexts

_KEYS, _OLD_VALUES, _NEW_VALUES = 0x0A, 0x12, 0x1A
"""Tags of a mod's fields; each field is a value with its column."""
_INDEX_TAG, _VALUE_TAG = 0x08, 0x12
"""Tags within these fields: the index of the column, which is omitted if 0, and the value."""
quoted: Final = json.JSONEncoder(ensure_ascii=False).encode


def mod_texts(mods: Sequence[bytes], names: Mapping[int, str]) -> ModTexts:
    """Return the keys, new values and old values of mods, one after the other."""
    return tuple([part for mod in mods for part in _mod(mod, names)])


def _mod(content: bytes, names: Mapping[int, str]) -> Iterator[str]:
    """Return the keys, new values and old values of a mod as JSON objects.

    Raises:
        ValueError: a value has another form.
        LookupError: the mod has an unknown field, or an index without a column.
    """
    parts: dict[int, dict[str, str]] = {_KEYS: {}, _NEW_VALUES: {}, _OLD_VALUES: {}}
    position, end = 0, len(content)
    while position < end:
        members, length = parts[content[position]], content[position + 1]
        position += 2
        if length >= CONTINUES:
            length, position = integer(content, position - 1)
        value_end, index = position + length, 0
        if content[position] == _INDEX_TAG:
            index, position = integer(content, position + 1)
        tag, length = content[position], content[position + 1]
        position += 2
        if length >= CONTINUES:
            length, position = integer(content, position - 1)
        if tag != _VALUE_TAG or not position + length == value_end <= end:
            raise ValueError("a value of a mod has another form")
        members[names[index]] = _json(content[position : position + length])
        position = value_end
    return map(_object, parts.values())


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{name}:{value}" for name, value in members.items()]) + "}"


# A JSON encoder would take as long as the rest of a record.
def _json(value: bytes) -> str:
    """Return a value as JSON text.

    Raises:
        ValueError: the value is a number that JSON lacks, or of a kind that change records do not have.
        IndexError: the value is empty.
    """
    kind = value[0]
    if kind == NUMBER_TAG:
        return _number(number(value))
    if kind == BOOL_TAG:
        return "true" if boolean(value) else "false"
    if kind == LIST_TAG:
        return f"[{','.join(map(_json, items(value)))}]"
    content = text(value)
    return "null" if content is None else quoted(content)


def _number(value: float) -> str:
    """Return a number as the texts of the other mode have it: whole numbers without a fraction."""
    if not isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    text = repr(value)
    return text[:-2] if text.endswith(".0") and text != "-0.0" else text
