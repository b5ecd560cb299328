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


def _number(value: Any) -> float:
    # NaN and the infinities come as text, which float() reads.
    return float(value.string_value) if value.HasField("string_value") else float(value.number_value)


_READERS: Final[dict[str, tuple[pa.DataType, Callable[[Any], Any]]]] = {
    "BOOL": (pa.bool_(), lambda value: value.bool_value),
    "INT64": (pa.int64(), lambda value: int(value.string_value)),
    "FLOAT32": (pa.float32(), _number),
    "FLOAT64": (pa.float64(), _number),
    "NUMERIC": (pa.decimal128(38, 9), lambda value: Decimal(value.string_value)),
    "STRING": (pa.string(), lambda value: value.string_value),
    "BYTES": (pa.binary(), lambda value: b64decode(value.string_value)),
    "DATE": (pa.date32(), lambda value: date.fromisoformat(value.string_value)),
    "TIMESTAMP": (TIMESTAMP, lambda value: from_rfc3339(value.string_value)),
}
_AS_TEXT: Final = _READERS["STRING"]
_TEXT_ANNOTATIONS: Final = frozenset({"PG_NUMERIC", "PG_JSONB"})


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column; types without an equal, or unknown, are text."""
    if column_type.code == ARRAY and column_type.element is not None:
        return pa.list_(arrow_type(column_type.element))
    return _reader(column_type)[0]


def to_arrow(column_type: ColumnType, values: Sequence[Any]) -> pa.Array:
    """Return protobuf values of one column as an Arrow array."""
    return pa.array(_decoded(column_type, values), arrow_type(column_type))


def _decoded(column_type: ColumnType, values: Sequence[Any]) -> list[Any]:
    if column_type.code == ARRAY and column_type.element is not None:
        element = column_type.element
        return [
            None if value.HasField("null_value") else _decoded(element, value.list_value.values)
            for value in values
        ]
    read = _reader(column_type)[1]
    return [None if value.HasField("null_value") else read(value) for value in values]


def _reader(column_type: ColumnType) -> tuple[pa.DataType, Callable[[Any], Any]]:
    if column_type.annotation in _TEXT_ANNOTATIONS:
        return _AS_TEXT
    return _READERS.get(column_type.code, _AS_TEXT)
