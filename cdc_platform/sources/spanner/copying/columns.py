"""Values of tables, as Spanner sends them, as Arrow columns with the types of the lake's tables."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.base.number_texts import whole_number
from cdc_platform.model.base.schemas import TIMESTAMP
from cdc_platform.model.base.timestamps import from_rfc3339, is_between_micros, to_nanosecond_text
from cdc_platform.model.schema.table_schema import (
    ARRAY,
    NANOSECONDS,
    PG_JSONB,
    PG_NUMERIC,
    ColumnType,
    TableSchema,
)
from cdc_platform.sources.spanner.client.wire import (
    MISSHAPEN,
    boolean,
    is_null,
    items,
    number,
    plain_value,
    required_text,
    text_bytes,
)

_SHOWN: Final = 100
_EXCERPT_BYTES: Final = 500
_NUMERIC: Final = re.compile(r"-?\d{1,29}(?:\.\d{1,9})?", re.ASCII)
"""A NUMERIC of GoogleSQL. Arrow crashes the process for a decimal with a large negative exponent."""

Reader = tuple[pa.DataType, Callable[[bytes], Any]]


def _numeric(value: bytes) -> Decimal:
    text = required_text(value)
    if _NUMERIC.fullmatch(text) is None:
        raise ValueError(f"{text[:_SHOWN]!r} is not a NUMERIC")
    return Decimal(text)


_INTEGER: Final[Reader] = (pa.int64(), lambda value: whole_number(required_text(value)))
_BYTES: Final[Reader] = (pa.binary(), lambda value: b64decode(required_text(value), validate=True))
_TEXT: Final[Reader] = (pa.string(), required_text)
_READERS: Final[dict[str, Reader]] = {
    "BOOL": (pa.bool_(), boolean),
    "INT64": _INTEGER,
    "ENUM": _INTEGER,
    "FLOAT32": (pa.float32(), number),
    "FLOAT64": (pa.float64(), number),
    "NUMERIC": (pa.decimal128(38, 9), _numeric),
    "STRING": _TEXT,
    "JSON": _TEXT,
    "UUID": _TEXT,
    "INTERVAL": _TEXT,
    "BYTES": _BYTES,
    "PROTO": _BYTES,
    "DATE": (pa.date32(), lambda value: date.fromisoformat(required_text(value))),
    "TIMESTAMP": (TIMESTAMP, lambda value: from_rfc3339(required_text(value))),
}
_ANNOTATED: Final[dict[str | None, Reader]] = {
    PG_NUMERIC: _TEXT,
    PG_JSONB: _TEXT,
    NANOSECONDS: (pa.string(), lambda value: to_nanosecond_text(required_text(value))),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column; types that are unknown or have no equivalent are text."""
    if column_type.code == ARRAY and column_type.element is not None:
        return pa.list_(arrow_type(column_type.element))
    return _reader(column_type)[0]


def table_arrow_schema(table: TableSchema) -> pa.Schema:
    """Return the Arrow schema of the table's rows."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


def values_to_batch(table: TableSchema, values: Sequence[bytes]) -> pa.RecordBatch:
    """Return the values of whole rows, row after row with the table's columns in order, as one batch.

    Raises:
        RecordUnreadable: a value does not have its column's type.
    """
    arrays = [_column(table, place, values) for place in range(len(table.columns))]
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(table))


def _column(table: TableSchema, place: int, values: Sequence[bytes]) -> pa.Array:
    column = table.columns[place]
    try:
        return to_arrow(column.type, values[place :: len(table.columns)])
    except MISSHAPEN as error:
        raise _unreadable(table, place, values, error) from error


def _unreadable(table: TableSchema, place: int, values: Sequence[bytes], error: Exception) -> Exception:
    """Return the error of the first row whose value cannot be read, with the row's key."""
    column, width = table.columns[place], len(table.columns)
    rows = (values[start : start + width] for start in range(0, len(values), width))
    row = next((row for row in rows if not is_readable(column.type, row[place])), None)
    if row is None:
        # Each single value is valid, but together they exceed the size of an Arrow array.
        return RecordUnreadable(f"Values of `{table.name}`.`{column.name}` cannot be read: {error}")
    key = {
        column.name: shown_value(row[at]) for at, column in enumerate(table.columns) if column.is_primary_key
    }
    return RecordUnreadable(
        f"Table `{table.name}`, key {key}: the value of the column `{column.name}` is not of its type "
        f"{column.type.text} ({type(error).__name__}: {error}). Nothing of this part of the table was taken; "
        f"report it with this value: {row[place][:_EXCERPT_BYTES]!r}"
    )


def to_arrow(column_type: ColumnType, values: Sequence[bytes]) -> pa.Array:
    """Return the values of one column, which are protobuf values in bytes, as an Arrow array.

    Raises:
        ValueError, ArithmeticError, ...: one of `MISSHAPEN`, if a value does not have the type.
    """
    kind = arrow_type(column_type)
    if _reader(column_type) in (_INTEGER, _TEXT):
        return _parse_texts(values, kind)
    return pa.array(_decode(column_type, values), kind)


def is_readable(column_type: ColumnType, value: bytes) -> bool:
    """Return whether `to_arrow` accepts a value."""
    try:
        to_arrow(column_type, [value])
    except MISSHAPEN:
        return False
    return True


def shown_value(value: bytes) -> Any:
    """Return a value in the form for messages, even if it is malformed."""
    try:
        return plain_value(value)
    except MISSHAPEN:
        return value


def find_unfit_moment(values: Iterable[bytes]) -> str | None:
    """Return the first timestamp of a column that `to_arrow` would truncate, else None.

    Values that are not timestamps are left to `to_arrow`.
    """
    for value in values:
        text = shown_value(value)
        if isinstance(text, str) and is_between_micros(text):
            return text
    return None


def _parse_texts(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Return texts, or the decimal numbers in them; Arrow parses a column in the time of a few calls."""
    texts = pa.array(map(text_bytes, values), pa.binary()).cast(pa.string())
    if kind != pa.string() and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        raise ValueError("a hexadecimal number, which Arrow accepts, is none of Spanner's")
    return texts.cast(kind)


def _decode(column_type: ColumnType, values: Sequence[bytes]) -> list[Any]:
    if column_type.code == ARRAY and column_type.element is not None:
        element = column_type.element
        return [None if is_null(value) else _decode(element, items(value)) for value in values]
    reader = _reader(column_type)[1]
    return [None if is_null(value) else reader(value) for value in values]


def _reader(column_type: ColumnType) -> Reader:
    reader = _ANNOTATED.get(column_type.annotation) or _READERS.get(column_type.code)
    return reader or (pa.string(), _any_text)


def _any_text(value: bytes) -> str:
    """Return a value of an unknown type as change records have it: a text unchanged, others as JSON."""
    plain = plain_value(value)
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
