"""Lookup of one row in a table's initial copy; no Spark."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from math import isfinite, isnan
from typing import Any, Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.literals import FloatLiteral
from pyiceberg.schema import Schema

from cdc_platform.lake.commits.filters import all_of, equals
from cdc_platform.lake.state.copies import load_copy_progress, load_plans
from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339, to_datetime, to_rfc3339
from cdc_platform.model.rows.row_key import NANOSECOND_TEXT, KeyColumn, RowKey
from cdc_platform.model.schema.table_options import DELETED, DELETED_AT
from cdc_platform.pipeline.opened.pipeline import Pipeline

_EXACT: Final = Context(prec=38)


@dataclass(frozen=True)
class CopiedRow:
    """A row at the copy's position; ``values`` are those outside the key, in the source's JSON."""

    position_micros: int
    values: Mapping[str, Any]


def find_copied_row(pipeline: Pipeline, table: str, keys: Sequence[RowKey]) -> CopiedRow | None:
    """Return the row of a key in the complete initial copy of a table; None without a row or a copy.

    ``keys`` has the key in each spelling of its columns' types.
    """
    plan, stored_table = load_plans(pipeline.lake).get(table), pipeline.lake.table(table)
    if plan is None or stored_table is None:
        return None
    progress = load_copy_progress(stored_table, plan)
    if progress.head is None or progress.head.schema_id is None or not progress.is_complete:
        return None
    copied_schema = stored_table.schemas()[progress.head.schema_id]
    key = next((key for key in keys if _is_typed(key, copied_schema)), None)
    if key is None:
        # The table was recreated with another key after the copy.
        return None
    names = {column.name for column in key.columns}
    snapshot_id = progress.head.snapshot_id
    if key == keys[0]:
        rows = stored_table.scan(_is_key(key), snapshot_id=snapshot_id).to_arrow().to_pylist()
    else:
        # Another column has the name now, and a filter would need its type.
        every = stored_table.scan(snapshot_id=snapshot_id).to_arrow_batch_reader()
        rows = [row for batch in every for row in batch.to_pylist() if _has_key(row, key)]
    if not rows:
        return None
    values = {
        name: source_json(value)
        for name, value in rows[0].items()
        if name not in {*names, DELETED, DELETED_AT}
    }
    return CopiedRow(plan.position_micros, values)


def _is_typed(key: RowKey, schema: Schema) -> bool:
    """Return whether a copy has the columns of a key with the same types."""
    types = {field.name: str(field.field_type) for field in schema.fields}
    kinds = {column.name: column.kind for column in key.columns}
    return all(types.get(name) == kind.replace(NANOSECOND_TEXT, "string") for name, kind in kinds.items())


def _has_key(row: Mapping[str, Any], key: RowKey) -> bool:
    pairs = zip(key.columns, key.values, strict=True)
    return all(source_json(row[column.name]) == value for column, value in pairs)


def _is_key(key: RowKey) -> BooleanExpression:
    return all_of(
        *(
            equals(column.name, None if value is None else _literal(column, value))
            for column, value in zip(key.columns, key.values, strict=True)
        )
    )


def _literal(column: KeyColumn, value: Any) -> Any:
    """Return a value of a key in the form that Iceberg compares."""
    if column.kind in {"int", "long"}:
        return int(value)
    if column.kind == "binary":
        return base64.b64decode(value)
    if column.kind.startswith("decimal"):
        # Iceberg compares only decimals of the column's scale.
        scale = int(column.kind.removesuffix(")").split(",")[1])
        return Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if column.kind in {"float", "double"}:
        number = float(value)
        # As a double, an infinity would lie outside the range of FLOAT32.
        return FloatLiteral(number) if column.kind == "float" and not isnan(number) else number
    if column.kind != NANOSECOND_TEXT and column.kind.startswith("timestamp"):
        return to_datetime(from_rfc3339(value)).isoformat()
    return value


def source_json(value: Any) -> Any:
    """Return a value in the source's JSON, so that equal values are equal in copy and log."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, list):
        return [source_json(element) for element in value]
    return next((write(value) for kind, write in _TEXTS.items() if isinstance(value, kind)), value)


def _float_json(value: float) -> float | str:
    """Return a number, or a text for the values that JSON lacks."""
    if isnan(value):
        return "NaN"
    return value if isfinite(value) else f"{'-' if value < 0 else ''}Infinity"


def _moment_text(value: datetime) -> str:
    """Return a timestamp without trailing zeros of its second, as Spanner writes it."""
    whole, _, fraction = to_rfc3339(from_datetime(value)).removesuffix("Z").partition(".")
    return f"{whole}.{fraction}".rstrip("0").rstrip(".") + "Z"


_TEXTS: Final[Mapping[type, Callable[[Any], Any]]] = {
    int: str,
    float: _float_json,
    Decimal: lambda value: f"{value.normalize(_EXACT):f}",
    bytes: lambda value: base64.b64encode(value).decode(),
    # A datetime is a date, too.
    datetime: _moment_text,
    date: date.isoformat,
}
