"""SQL that casts the texts of change records to Spark's types."""

import json
from collections.abc import Sequence
from typing import Final

from cdc_platform.model.base.names import quote_text
from cdc_platform.model.schema.table_schema import (
    MAX_PLAIN_INTEGER,
    NANOSECONDS,
    ColumnType,
    TableSchema,
    spark_type,
)

TEXTS = "'array<string>'"
"""Type of arrays whose elements are cast one by one from their texts."""
LONGEST_TEXT = 20_000_000
"""Characters of the longest text that Spark parses; a longer text, or an object that has one, is NULL."""
_SHOWN_CHARACTERS = 200
WIDE_COLUMNS = 100
"""Number of columns above which all values of one type are checked together: Spark would plan a query that
checks each of a thousand columns separately for tens of seconds."""


def is_wide(table: TableSchema) -> bool:
    """Return whether a table has so many columns that those of one type are checked together."""
    return len(table.columns) > WIDE_COLUMNS


def names_by_type(table: TableSchema) -> dict[ColumnType, list[str]]:
    """Return the columns outside the key, by type."""
    names: dict[ColumnType, list[str]] = {}
    for column in table.value_columns:
        names.setdefault(column.type, []).append(column.source_name)
    return names


def cast_expression(text: str, column_type: ColumnType) -> str:
    """Return SQL that casts Spanner's JSON text of a value to its Spark type; NULL if impossible."""
    if column_type.element is not None:
        element = cast_expression("e", column_type.element)
        return f"transform(from_json({text}, {TEXTS}), e -> {element})"
    if column_type.annotation == NANOSECONDS:
        return _nanosecond_text(text)
    target = spark_type(column_type)
    if target == "string":
        return text
    if target == "binary":
        return f"try_to_binary({text}, 'base64')"
    return f"try_cast({text} as {target})"


def strict_cast_expression(text: str, column_type: ColumnType, failure: str) -> str:
    """Return the same, but fail the query if a text cannot be cast; `failure` is the SQL of its message."""
    error = f"raise_error({failure})"
    if column_type.element is not None:
        element = strict_cast_expression("e", column_type.element, failure)
        cast = f"transform(from_json({text}, {TEXTS}), e -> {element})"
        return f"coalesce({cast}, CASE WHEN {text} IS NOT NULL THEN {error} END)"
    cast = cast_expression(text, column_type)
    if cast == text:
        return text
    return f"coalesce({cast}, CASE WHEN {text} IS NOT NULL THEN {error} END)"


def unfit_expression(text: str, column_type: ColumnType) -> str | None:
    """Return the SQL of whether a text exists and cannot be cast; None if every text can be cast."""
    if column_type.element is not None:
        element = unfit_expression("e", column_type.element)
        texts = f"from_json({text}, {TEXTS})"
        unfit = f"coalesce(exists({texts}, e -> {element}), true)" if element else f"{texts} IS NULL"
        return f"({text} IS NOT NULL AND {unfit})"
    cast = cast_expression(text, column_type)
    return None if cast == text else f"({text} IS NOT NULL AND {cast} IS NULL)"


def names_array(names: Sequence[str]) -> str:
    """Return the SQL of an array of names, which Spark analyses as one literal."""
    return f"from_json({quote_text(json.dumps(list(names)))}, {TEXTS})"


def unfit_names_expression(texts: str, column_type: ColumnType, names: str) -> str | None:
    """Return the SQL of the names of columns of one type whose texts cannot be cast; None if all can be.

    ``texts`` is the SQL of a map from names to texts, and ``names`` that of an array of the columns.
    """
    unfit = unfit_expression("text", column_type)
    if unfit is None:
        return None
    return f"array_intersect({names}, map_keys(map_filter({texts}, (name, text) -> {unfit})))"


def key_unfit_expression(text: str, column_type: ColumnType) -> str | None:
    """Return the same for a column of the primary key.

    Digits beyond microseconds would be truncated, and two keys could become one.
    """
    unfit = unfit_expression(text, column_type)
    if spark_type(column_type) != "timestamp":
        return unfit
    return f"({unfit} OR coalesce(rlike({text}, '[.][0-9]{{6}}[0-9]*[1-9]'), false))"


def parsed_object(text: str) -> str:
    """Return the SQL of the texts in a JSON object by name; NULL if Spark cannot parse it."""
    return f"from_json({text}, 'map<string,string>')"


def shown_expression(text: str) -> str:
    """Return the SQL of a value in the form for messages."""
    return f"coalesce(left({text}, {_SHOWN_CHARACTERS}), 'NULL')"


def _nanosecond_text(text: str) -> str:
    micros = f"date_format(try_cast({text} as timestamp), \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
    rest = f"rpad(substring(regexp_extract({text}, '[.]([0-9]+)', 1), 7, 3), 3, '0')"
    return f"concat({micros}, {rest}, 'Z')"


_MOMENTS: Final = {
    "timestamp": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestamp_ntz": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_PLAIN: Final = {"boolean": "{}", "double": "{}", "float": "cast({} as double)"}
"""Elements that JSON writes without quotes, except for numbers that are not finite."""
_LOGGED_INTEGER: Final = (
    f"CASE WHEN e BETWEEN -{MAX_PLAIN_INTEGER} AND {MAX_PLAIN_INTEGER} THEN cast(e as string) "
    "ELSE coalesce(concat('\"', e, '\"'), 'null') END"
)


def logged_scalar(value: str, type_name: str) -> str:
    """Return the text of a value of one of the lake's types other than arrays; bytes are read as UTF-8."""
    pattern = _MOMENTS.get(type_name)
    if pattern is not None:
        return f'date_format({value}, "{pattern}")'
    if type_name == "float":
        return f"cast(cast({value} as double) as string)"
    return f"cast({value} as string)"


def logged_text(value: str, kind: ColumnType) -> str:
    """Return the text of a value in the log's form: bytes in base64, arrays as JSON."""
    target = spark_type(kind)
    if kind.element is not None and spark_type(kind.element) == "bigint":
        numbers = f"transform({value}, e -> {_LOGGED_INTEGER})"
        return f"concat('[', array_join({numbers}, ','), ']')"
    if kind.element is not None:
        return f"to_json(transform({value}, e -> {_logged_element(kind.element)}))"
    # Without line breaks, which Spark may add to long texts.
    return f"translate(base64({value}), '\\r\\n', '')" if target == "binary" else logged_scalar(value, target)


def _logged_element(kind: ColumnType) -> str:
    plain = _PLAIN.get(spark_type(kind))
    return plain.format("e") if plain is not None else logged_text("e", kind)


def convert_expression(value: str, old: ColumnType, to: ColumnType, *, is_widened: bool = False) -> str:
    """Return the SQL that converts a value if a column changes its type in place.

    Between text and bytes this is UTF-8, as in Spanner; all other types that Spanner converts are the same in
    the lake. Timestamps and floats become their texts in the log; if it is widened, bytes and arrays do, too.
    """
    if is_widened and spark_type(to) == "string":
        return logged_text(value, old)
    return convert_stored_expression(value, spark_type(old), to)


def convert_stored_expression(value: str, old: str, to: ColumnType) -> str:
    """Return the same for a value of which only the lake's type is known."""
    if spark_type(to) == "string":
        return logged_scalar(value, old)
    return f"cast({value} as {spark_type(to)})"
