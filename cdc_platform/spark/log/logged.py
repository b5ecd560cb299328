"""SQL of the texts that the change log has for stored values, for columns that have become text."""

from typing import Final

from cdc_platform.model.schema.table_schema import MAX_PLAIN_INTEGER, ColumnType, spark_type

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


def logged_scalar(value: str, stored: str) -> str:
    """Return the text of a value of one of the lake's types other than arrays; bytes are read as UTF-8."""
    pattern = _MOMENTS.get(stored)
    if pattern is not None:
        return f'date_format({value}, "{pattern}")'
    if stored == "float":
        return f"cast(cast({value} as double) as string)"
    return f"cast({value} as string)"


def logged_text(value: str, kind: ColumnType) -> str:
    """Return the text of a value in the log's form: bytes in base64, arrays as JSON."""
    stored = spark_type(kind)
    if kind.element is not None and spark_type(kind.element) == "bigint":
        numbers = f"transform({value}, e -> {_LOGGED_INTEGER})"
        return f"concat('[', array_join({numbers}, ','), ']')"
    if kind.element is not None:
        return f"to_json(transform({value}, e -> {_logged_element(kind.element)}))"
    # Without line breaks, which Spark may add to long texts.
    return f"translate(base64({value}), '\\r\\n', '')" if stored == "binary" else logged_scalar(value, stored)


def _logged_element(kind: ColumnType) -> str:
    plain = _PLAIN.get(spark_type(kind))
    return plain.format("e") if plain is not None else logged_text("e", kind)
