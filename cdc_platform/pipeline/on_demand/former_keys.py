"""Former spellings of a key in a log and a copy, from when its columns had other types."""

import base64
from collections.abc import Iterator
from itertools import product

from cdc_platform.model.rows.row_key import KeyColumn, RowKey
from cdc_platform.model.schema.column_versions import ColumnHistory, ColumnVersion

STRING_KIND, BYTES_KIND = "string", "binary"
_KINDS = {"STRING": STRING_KIND, "BYTES": BYTES_KIND, "PROTO": BYTES_KIND}
"""Types between which the source converts stored values."""


def former_keys(columns: ColumnHistory, key: RowKey) -> tuple[RowKey, ...]:
    """Return the key in each combination of its columns' former types, converted as Spanner does."""
    spellings = [[(column, value), *_former(columns, column, value)] for column, value in _pairs(key)]
    return tuple(
        RowKey(tuple(column for column, _ in pairs), tuple(value for _, value in pairs))
        for number, pairs in enumerate(product(*spellings))
        if number  # the first is the key itself
    )


def _pairs(key: RowKey) -> Iterator[tuple[KeyColumn, object]]:
    yield from zip(key.columns, key.values, strict=True)


def _former(columns: ColumnHistory, column: KeyColumn, value: object) -> Iterator[tuple[KeyColumn, object]]:
    """Yield the former columns of a key's column with their values, newest version first."""
    kinds = {column.kind}
    for version in _versions_before(columns, columns.live(column.name)):
        kind = _KINDS.get(version.type.code)
        if kind is None or kind in kinds:
            continue
        kinds.add(kind)
        key_value = _convert(value, kind)
        if key_value is not None or value is None:
            yield KeyColumn(column.name, kind), key_value


def _versions_before(columns: ColumnHistory, version: ColumnVersion | None) -> Iterator[ColumnVersion]:
    while version is not None and version.before is not None:
        version = columns.versions[version.before]
        yield version


def _convert(value: object, kind: str) -> str | None:
    """Return the text of a value in the other of the two kinds; None if it has none there."""
    if not isinstance(value, str):
        return None
    if kind == BYTES_KIND:
        return base64.b64encode(value.encode()).decode()
    try:
        return base64.b64decode(value).decode()
    except UnicodeDecodeError:
        return None
