"""Values of ordinary query results as Arrow columns of the types that the lake's tables have."""

from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from cdc_platform.model.schemas import TIMESTAMP
from cdc_platform.model.table_schema import ARRAY, ColumnType
from cdc_platform.model.timestamps import from_rfc3339
from cdc_platform.sources.spanner.wire import boolean, is_null, items, number, required_text

_READERS: Final[dict[str, tuple[pa.DataType, Callable[[bytes], Any]]]] = {
    "BOOL": (pa.bool_(), boolean),
    "INT64": (pa.int64(), lambda value: int(required_text(value))),
    "FLOAT32": (pa.float32(), number),
    "FLOAT64": (pa.float64(), number),
    "NUMERIC": (pa.decimal128(38, 9), lambda value: Decimal(required_text(value))),
    "STRING": (pa.string(), required_text),
    "BYTES": (pa.binary(), lambda value: b64decode(required_text(value))),
    "DATE": (pa.date32(), lambda value: date.fromisoformat(required_text(value))),
    "TIMESTAMP": (TIMESTAMP, lambda value: from_rfc3339(required_text(value))),
}
_AS_TEXT: Final = _READERS["STRING"]
_TEXT_ANNOTATIONS: Final = frozenset({"PG_NUMERIC", "PG_JSONB"})


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column; types without an equal, or unknown, are text."""
    if column_type.code == ARRAY and column_type.element is not None:
        return pa.list_(arrow_type(column_type.element))
    return _reader(column_type)[0]


def to_arrow(column_type: ColumnType, values: Sequence[bytes]) -> pa.Array:
    """Return the values of one column, which are protobuf values in bytes, as an Arrow array."""
    return pa.array(_decoded(column_type, values), arrow_type(column_type))


def _decoded(column_type: ColumnType, values: Sequence[bytes]) -> list[Any]:
    if column_type.code == ARRAY and column_type.element is not None:
        element = column_type.element
        return [None if is_null(value) else _decoded(element, items(value)) for value in values]
    read = _reader(column_type)[1]
    return [None if is_null(value) else read(value) for value in values]


def _reader(column_type: ColumnType) -> tuple[pa.DataType, Callable[[bytes], Any]]:
    if column_type.annotation in _TEXT_ANNOTATIONS:
        return _AS_TEXT
    return _READERS.get(column_type.code, _AS_TEXT)
