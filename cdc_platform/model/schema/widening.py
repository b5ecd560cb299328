"""Widening of column types, for columns whose events come in no order.

Such a column has the narrowest type that holds every value seen so far. Its type never narrows again, and
does not depend on which of two schemas was seen first.
"""

from typing import Final

from cdc_platform.model.schema.table_schema import DECIMAL, PG_NUMERIC, ColumnType, spark_type

TEXT: Final = ColumnType("STRING")
DIGITS: Final = ColumnType("NUMERIC", annotation=PG_NUMERIC)
"""Numbers of any size, kept as text with their original digits."""

_INT64_DIGITS: Final = 19
_MAX_DIGITS: Final = 38
_FLOATS: Final = frozenset({"FLOAT32", "FLOAT64"})
_DATED: Final = frozenset({"TIMESTAMP", "DATETIME"})
_OPAQUE: Final = frozenset({"ARRAY", "BYTES", "PROTO"})
_KEY_FAMILIES: Final = {
    **dict.fromkeys(_FLOATS, "a float"),
    **dict.fromkeys(("BYTES", "PROTO"), "bytes"),
    "ARRAY": "an array",
}


def joined_type(first: ColumnType, other: ColumnType) -> ColumnType:
    """Return the narrowest type that holds the values of two types; text holds all values.

    Values of the narrower type have the encoding of the result: the log's texts need no change.
    """
    if first == other:
        return first
    if _is_number(first) and _is_number(other):
        return _joined_number(first, other)
    codes = {first.code, other.code}
    date_codes = codes & _DATED
    if "DATE" in codes and date_codes and not (first.annotation or other.annotation):
        return ColumnType(date_codes.pop())
    return TEXT


def key_family(kind: ColumnType) -> str:
    """Return the family of a key's type; no common type keeps keys of two families distinct.

    Several large integers become one float, and the text of a float matches none of them. The text of bytes
    or of an array may also be the text of another key.
    """
    return _KEY_FAMILIES.get(kind.code, "not a float, bytes or array")


def keeps_values(former_type: ColumnType, new_type: ColumnType) -> bool:
    """Return whether a column's stored values are still valid after its type changed in place.

    They are if every database converts them to the same text of the new type, because the database does not
    state how it converted them: the text of a moment depends on its settings, that of a float on its version.
    An integer becomes the nearest float everywhere.
    """
    if (former_type.code, new_type.code) == ("INT64", "FLOAT64") and _is_number(former_type):
        return True
    if joined_type(former_type, new_type) != new_type or former_type.code in _OPAQUE:
        return False
    if former_type.code in _FLOATS:
        return new_type.code in _FLOATS
    return former_type.code not in _DATED and (former_type.code, new_type.code) != ("DATE", "TIMESTAMP")


def _is_number(kind: ColumnType) -> bool:
    if kind.code == "NUMERIC":
        return kind.annotation == PG_NUMERIC
    return kind.code in _FLOATS or kind.code == DECIMAL or (kind.code == "INT64" and not kind.annotation)


def _joined_number(first: ColumnType, other: ColumnType) -> ColumnType:
    codes = {first.code, other.code}
    if codes <= _FLOATS:
        return ColumnType("FLOAT64")
    # A float would lose digits of a decimal, and of an integer beyond 2^53.
    if codes & _FLOATS or "string" in (spark_type(first), spark_type(other)):
        return DIGITS
    return _joined_decimal(_digits(first), _digits(other))


def _digits(kind: ColumnType) -> tuple[int, int]:
    """Return the digits before the point, and after it."""
    if kind.code == "INT64":
        return _INT64_DIGITS, 0
    precision, _, scale = (kind.annotation or "").partition(",")
    return int(precision) - int(scale), int(scale)


def _joined_decimal(first: tuple[int, int], other: tuple[int, int]) -> ColumnType:
    whole, scale = max(first[0], other[0]), max(first[1], other[1])
    return (
        ColumnType(DECIMAL, annotation=f"{whole + scale},{scale}") if whole + scale <= _MAX_DIGITS else DIGITS
    )
