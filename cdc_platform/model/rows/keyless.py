"""Rows of tables without a key: which of them are equal, and which of the equal ones is meant.

Such a table is a multiset. Its rows get a key of two columns: a digest of the row, and which of the rows
that equal it this is, counted from 1. An inserted row is the next copy, and what deletes one deletes the
last copy: among equal rows nobody can say which.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from cdc_platform.model.base.stored_texts import RAW_TABLE, as_shape, read_stored

ROW: Final = "__row"
"""Column with the digest of the row's values."""
COPY: Final = "__copy"
"""Column with the number of the row among those that equal it."""
UNNUMBERED: Final = 0
"""Placeholder for the number, which follows from the rows before."""

_BEGINNING: Final = f'{{"{COPY}":'
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def keyless_keys(values: Mapping[str, Any]) -> str:
    """Return the key of a row, not numbered yet, as the log writes keys.

    NULL counts like a column that is missing, so that a column which is added later changes nothing.
    """
    present = {name: value for name, value in values.items() if value is not None}
    return keys_text(sha256(_ENCODER.encode(present).encode()).hexdigest(), UNNUMBERED)


def keys_text(row: str, copy: int) -> str:
    """Return a key as the log writes it."""
    return f'{{"{COPY}":{copy},"{ROW}":"{row}"}}'


def row_of(keys: str) -> str:
    """Return the digest in a key that its row has got here.

    Raises:
        LakeDamaged: the key is none that is written here.
    """
    return read_stored(_row_of, keys, RAW_TABLE, f"a change of the row {keys}")


def _row_of(keys: str) -> str:
    return as_shape(json.loads(keys)[ROW], str)


def is_keyless(keys: str) -> bool:
    """Return whether a key of the log is one that its row has got here."""
    return keys.startswith(_BEGINNING)


def keyless_columns() -> list[dict[str, Any]]:
    """Return the key's columns as `column_types` of an event has them."""
    types = {ROW: "STRING", COPY: "INT64"}
    return [
        {"name": name, "type": {"code": code}, "is_primary_key": True, "ordinal_position": ordinal}
        for ordinal, (name, code) in enumerate(types.items(), start=1)
    ]
