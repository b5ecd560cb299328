import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from cdc_platform.model.table_schema import ColumnType
from cdc_platform.sources.spanner.columns import arrow_type, to_arrow
from cdc_platform_tests.sources.spanner.fake_server import Plain, to_value

MOMENT = datetime(2026, 11, 21, 6, 0, 0, 123456, UTC)


def column(type_text: str, *plain: Plain, annotation: str | None = None) -> pa.Array:
    """Return values of a type as an Arrow array."""
    column_type = ColumnType.from_spanner_type(type_text)
    column_type = ColumnType(column_type.code, column_type.element, annotation)
    return to_arrow(column_type, [to_value(value).SerializeToString() for value in plain])


@pytest.mark.parametrize(
    ("type_text", "plain", "expected"),
    [
        ("BOOL", False, False),
        ("INT64", "9007199254740993", 9007199254740993),  # more than a double holds
        ("FLOAT64", 0.5, 0.5),
        ("FLOAT64", "Infinity", math.inf),
        ("FLOAT32", 0.5, 0.5),
        ("NUMERIC", "-99999999999999999999999999999.999999999", Decimal("-" + "9" * 29 + "." + "9" * 9)),
        ("STRING(MAX)", "", ""),
        ("BYTES(10)", "AP8=", b"\x00\xff"),
        ("DATE", "0001-01-01", date(1, 1, 1)),
        ("TIMESTAMP", "2026-11-21T06:00:00.123456789Z", MOMENT),
        ("JSON", '{"a":1}', '{"a":1}'),
        ("ARRAY<INT64>", ["1", None], [1, None]),
        ("ARRAY<STRING(MAX)>", [], []),
        ("UUID", "a-b", "a-b"),  # a type that this version does not know
    ],
)
def test_value_of_each_type(type_text: str, plain: Plain, expected: object) -> None:
    """A value becomes what the lake's table holds; NULL stays NULL."""
    assert column(type_text, plain, None).to_pylist() == [expected, None]


def test_nan_is_kept() -> None:
    """NaN is a number of Spanner's."""
    assert math.isnan(column("FLOAT64", "NaN")[0].as_py())


def test_types_that_share_a_code_are_told_apart() -> None:
    """PostgreSQL's numeric has a wider range than NUMERIC, so it stays a text."""
    assert column("NUMERIC", "NaN", annotation="PG_NUMERIC").to_pylist() == ["NaN"]
    assert arrow_type(ColumnType("NUMERIC")) == pa.decimal128(38, 9)
