"""Values of every type as Spanner's JSON: what they are in a table, and such that do not fit."""

import math
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from cdc_platform.model.schema.table_schema import TableSchema

MAX_INT64 = 2**63 - 1
MIN_NUMERIC = "-99999999999999999999999999999.999999999"

VALUES: list[tuple[str, str, Any]] = [
    # type, JSON of the value, expected
    ("INT64", '"9007199254740993"', 2**53 + 1),
    ("INT64", f'"{MAX_INT64}"', MAX_INT64),
    ("INT64", f'"{-MAX_INT64 - 1}"', -MAX_INT64 - 1),
    ("BOOL", "true", True),
    ("BOOL", "false", False),
    ("FLOAT64", "0.1", 0.1),
    ("FLOAT64", "1e-7", 1e-7),
    ("FLOAT64", "5e-324", 5e-324),
    ("FLOAT64", "1.7976931348623157e308", 1.7976931348623157e308),
    ("FLOAT64", "3", 3.0),
    ("FLOAT64", '"NaN"', math.nan),
    ("FLOAT64", '"Infinity"', math.inf),
    ("FLOAT64", '"-Infinity"', -math.inf),
    ("FLOAT32", "0.5", 0.5),
    (
        "NUMERIC",
        '"-99999999999999999999999999999.999999999"',
        Decimal("-99999999999999999999999999999.999999999"),
    ),
    ("NUMERIC", '"0.000000001"', Decimal("0.000000001")),
    ("NUMERIC", '"7"', Decimal(7)),
    ("STRING(MAX)", '"a\\"b\\\\c\\u00e9\\n\\ud83d\\ude00"', 'a"b\\cé\n😀'),
    ("STRING(MAX)", '""', ""),
    ("STRING(MAX)", '"null"', "null"),
    ("BYTES(MAX)", '"AP8Q"', b"\x00\xff\x10"),
    ("BYTES(MAX)", '""', b""),
    ("DATE", '"2024-02-29"', date(2024, 2, 29)),
    ("DATE", '"0001-01-01"', date(1, 1, 1)),
    ("DATE", '"9999-12-31"', date(9999, 12, 31)),
    ("TIMESTAMP", '"2024-02-29T23:59:59.999999Z"', datetime(2024, 2, 29, 23, 59, 59, 999999, UTC)),
    ("TIMESTAMP", '"2024-02-29T23:59:59.123456789Z"', datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)),
    ("TIMESTAMP", '"1582-10-10T00:00:00Z"', datetime(1582, 10, 10, tzinfo=UTC)),
    ("TIMESTAMP", '"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("JSON", '"{\\"a\\": [1, null]}"', '{"a": [1, null]}'),
    ("ARRAY<INT64>", '["1", null, "9007199254740993"]', [1, None, 2**53 + 1]),
    ("ARRAY<INT64>", "[]", []),
    ("ARRAY<STRING(MAX)>", '["a,b", "[\\"c\\"]", null, ""]', ["a,b", '["c"]', None, ""]),
    ("ARRAY<BOOL>", "[true, null]", [True, None]),
    ("ARRAY<FLOAT64>", '[0.5, "NaN", null]', [0.5, math.nan, None]),
    ("ARRAY<BYTES(9)>", '["AP8Q", null]', [b"\x00\xff\x10", None]),
    ("ARRAY<DATE>", '["2024-02-29"]', [date(2024, 2, 29)]),
    ("ARRAY<TIMESTAMP>", '["1970-01-01T00:00:01Z"]', [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ("ARRAY<NUMERIC>", '["1.5", null]', [Decimal("1.5"), None]),
    ("ARRAY<JSON>", '["{\\"a\\": 1}"]', ['{"a": 1}']),
    ("ENUM<bank.Kind>", '"2"', 2),
    ("ENUM<bank.Kind>", "2", 2),
    ("PROTO<bank.Account>", '"AP8Q"', b"\x00\xff\x10"),
    ("UUID", '"0b8a3c9e-5d0e-4a5b-9d0a-3f7a2c1b4d5e"', "0b8a3c9e-5d0e-4a5b-9d0a-3f7a2c1b4d5e"),
    ("INTERVAL", '"P1Y2M3DT4H5M6.789S"', "P1Y2M3DT4H5M6.789S"),
    ("TIMESTAMP", '"2024-02-29T03:02:03.5+02:00"', datetime(2024, 2, 29, 1, 2, 3, 500000, UTC)),
    ("A_LATER_TYPE", '"as it is"', "as it is"),
    ("A_LATER_TYPE", "true", "true"),
    ("A_LATER_TYPE", '["a", null]', '["a",null]'),
    *((text, "null", None) for text in ("INT64", "STRING(9)", "BYTES(9)", "ARRAY<INT64>", "JSON", "DATE")),
]
UNFIT: list[tuple[str, str]] = [
    # type, JSON of a value that it cannot hold
    ("INT64", '"abc"'),
    ("INT64", '"9223372036854775808"'),
    ("INT64", '"1.5"'),
    ("INT64", '""'),
    ("INT64", '{"a": 1}'),
    ("BOOL", '"maybe"'),
    ("FLOAT64", '"many"'),
    ("NUMERIC", '"NaN"'),
    ("NUMERIC", '"100000000000000000000000000000"'),
    ("BYTES(9)", '"!"'),
    ("DATE", '"2024-02-30"'),
    ("TIMESTAMP", '"yesterday"'),
    ("ARRAY<INT64>", '["1", "NULL"]'),
    ("ARRAY<INT64>", '"1"'),
    ("ARRAY<STRING(MAX)>", '"a"'),
    ("ENUM<bank.Kind>", '"OPEN"'),
]


def with_nanoseconds(schema: TableSchema) -> TableSchema:
    """Return a table whose timestamps keep their nanoseconds."""
    columns = tuple(replace(column, type=column.type.with_nanoseconds()) for column in schema.columns)
    return replace(schema, columns=columns)
