"""The texts that the change log has of stored values, as SQL: what a column reads that has become text."""

from typing import Final

from cdc_platform.model.schema.table_schema import MAX_PLAIN_INTEGER, ColumnType, spark_type

_MOMENTS: Final = {
    "timestamp": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestamp_ntz": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_PLAIN: Final = {"boolean": "{}", "double": "{}", "float": "cast({} as double)"}
"""Elements that JSON writes without quotes, unless they are no finite number."""
_LOGGED_INTEGER: Final = (
    f"CASE WHEN e BETWEEN -{MAX_PLAIN_INTEGER} AND {MAX_PLAIN_INTEGER} THEN cast(e as string) "
    "ELSE coalesce(concat('\"', e, '\"'), 'null') END"
)


def logged_scalar(value: str, stored: str) -> str:
    """Return the text of a value of a type of the lake that is no array; bytes are taken for UTF-8."""
    pattern = _MOMENTS.get(stored)
    if pattern is not None:
        return f'date_format({value}, "{pattern}")'
    if stored == "float":
        return f"cast(cast({value} as double) as string)"
    return f"cast({value} as string)"


def logged_text(value: str, kind: ColumnType) -> str:
    """Return the text of a value as the log has it: bytes in base64, arrays as JSON."""
    stored = spark_type(kind)
    if kind.element is not None and spark_type(kind.element) == "bigint":
        numbers = f"transform({value}, e -> {_LOGGED_INTEGER})"
        return f"concat('[', array_join({numbers}, ','), ']')"
    if kind.element is not None:
        return f"to_json(transform({value}, e -> {_logged_element(kind.element)}))"
    # Without breaks of lines, which Spark may put into longer ones.
    return f"translate(base64({value}), '\\r\\n', '')" if stored == "binary" else logged_scalar(value, stored)


def _logged_element(kind: ColumnType) -> str:
    plain = _PLAIN.get(spark_type(kind))
    return plain.format("e") if plain is not None else logged_text("e", kind)
