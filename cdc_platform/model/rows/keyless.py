"""Keys for rows of tables without a key: a digest of the row and a number among equal rows.

Such a table is a multiset. The key of a row has two columns: a digest of the row, and its number among the
equal rows, from 1. An insert adds the next copy, and a delete removes the last copy, since equal rows cannot
be distinguished.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.stored_texts import as_shape, read_stored

ROW: Final = "__row"
"""Column with the digest of the row's values."""
COPY: Final = "__copy"
"""Column with the number of the row among equal rows."""
UNNUMBERED: Final = 0
"""Placeholder for the number, which depends on the earlier rows."""
UNNUMBERED_PREFIX: Final = f'{{"{COPY}":{UNNUMBERED},"{ROW}":'
"""Beginning of such a key, as text."""

_BEGINNING: Final = f'{{"{COPY}":'
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def keyless_keys(values: Mapping[str, Any]) -> str:
    """Return the key of a row, without its number, in the form of the log.

    NULL counts like a missing column, so a column that is added later changes nothing.
    """
    non_null_values = {name: value for name, value in values.items() if value is not None}
    return keys_text(sha256(_ENCODER.encode(non_null_values).encode()).hexdigest(), UNNUMBERED)


def keys_text(row: str, copy: int) -> str:
    """Return a key in the form of the log."""
    return f'{{"{COPY}":{copy},"{ROW}":"{row}"}}'


def row_of(keys: str) -> str:
    """Return the digest in a generated key.

    Raises:
        LakeDamaged: the key has another form.
    """
    return read_stored(_row_of, keys, RAW, f"a change of the row {keys}")


def _row_of(keys: str) -> str:
    return as_shape(json.loads(keys)[ROW], str)


def is_keyless(keys: str) -> bool:
    """Return whether a key of the log is a generated one."""
    return keys.startswith(_BEGINNING)


def keyless_columns() -> list[dict[str, Any]]:
    """Return the key's columns in the form of an event's `column_types`."""
    types = {ROW: "STRING", COPY: "INT64"}
    return [
        {"name": name, "type": {"code": code}, "is_primary_key": True, "ordinal_position": ordinal}
        for ordinal, (name, code) in enumerate(types.items(), start=1)
    ]
