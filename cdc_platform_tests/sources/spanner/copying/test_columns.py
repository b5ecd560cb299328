import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.spanner.copying.columns import arrow_type, to_arrow, values_to_batch
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.sources.spanner.fake_server import Plain, to_value
from cdc_platform_tests.strategies import typed_json_values
from cdc_platform_tests.support.history import JsonValue
from cdc_platform_tests.typed_values import typed_value

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
        ("ENUM<bank.Kind>", "2", 2),
        ("STRING(MAX)", "ä" * 100, "ä" * 100),  # its length has two bytes
        ("PROTO<bank.Account>", "AP8=", b"\x00\xff"),
        ("UUID", "0b8a3c9e-5d0e-4a5b-9d0a-3f7a2c1b4d5e", "0b8a3c9e-5d0e-4a5b-9d0a-3f7a2c1b4d5e"),
        ("INTERVAL", "P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.789S"),
        ("HOLOGRAM", "as it is", "as it is"),  # a type that this version does not know
        ("HOLOGRAM", 2, "2"),
        ("HOLOGRAM", 0.5, "0.5"),
        ("HOLOGRAM", True, "true"),
        ("HOLOGRAM", ["a", None, 1.5], '["a",null,1.5]'),
        ("ARRAY<HOLOGRAM>", ["a", None], ["a", None]),
    ],
)
def test_value_of_each_type(type_text: str, plain: Plain, expected: object) -> None:
    """A value becomes what the lake's table holds; NULL stays NULL."""
    assert column(type_text, plain, None).to_pylist() == [expected, None]


@given(case=typed_json_values())
def test_any_values_of_any_type(case: tuple[ColumnType, list[JsonValue]]) -> None:
    """A column of the source holds in Arrow what its values mean."""
    column_type, values = case
    array = to_arrow(column_type, [to_value(value).SerializeToString() for value in values])
    assert [typed_value(column_type, value) for value in values] == array.to_pylist()


def test_nan_is_kept() -> None:
    """NaN is a number of Spanner's."""
    assert math.isnan(column("FLOAT64", "NaN")[0].as_py())


def test_nanoseconds_are_kept_as_text() -> None:
    """A timestamp whose nanoseconds count is a text of a fixed length."""
    assert column("TIMESTAMP", "2026-11-21T06:00:00.5Z", annotation="NANOSECONDS").to_pylist() == [
        "2026-11-21T06:00:00.500000000Z"
    ]


def test_types_that_share_a_code_are_distinguished() -> None:
    """PostgreSQL's numeric has a wider range than NUMERIC, so it stays a text."""
    assert column("NUMERIC", "NaN", annotation="PG_NUMERIC").to_pylist() == ["NaN"]
    assert arrow_type(ColumnType("NUMERIC")) == pa.decimal128(38, 9)


@pytest.mark.parametrize(
    ("type_text", "value"),
    [
        ("INT64", to_value("abc").SerializeToString()),
        ("INT64", to_value("9" * 30).SerializeToString()),
        ("INT64", to_value("1_0").SerializeToString()),
        ("INT64", to_value("0x10").SerializeToString()),
        ("INT64", to_value(None).SerializeToString()[:0]),
        ("NUMERIC", to_value("x").SerializeToString()),
        ("NUMERIC", to_value("1e999999").SerializeToString()),
        ("NUMERIC", to_value("1e-10000000").SerializeToString()),
        ("NUMERIC", to_value("NaN").SerializeToString()),
        ("BYTES", to_value("%").SerializeToString()),
        ("FLOAT64", b"\x11\x00"),
        ("BOOL", b"\x20"),
        ("STRING(MAX)", b"\x1a\x02\xff\xfe"),
        ("DATE", to_value("2026-02-30").SerializeToString()),
        ("TIMESTAMP", to_value("0001-01-01T00:00:00+14:00").SerializeToString()),
        ("ARRAY<INT64>", to_value(["a"]).SerializeToString()),
        ("ARRAY<INT64>", to_value("a").SerializeToString()),
    ],
)
def test_a_value_of_another_type_names_its_place(type_text: str, value: bytes) -> None:
    """An answer that is none of the column's type is one error, with table, column and the row's key."""
    first, null, second = (to_value(plain).SerializeToString() for plain in ("1", None, "2"))
    schema = table("t", {"id": "INT64"}, {"v": type_text})
    with pytest.raises(
        RecordUnreadable,
        match=r"Table `t`, key \{'id': '2'\}: the value of the column `v` is not of its type .*report",
    ):
        values_to_batch(schema, [first, null, second, value])


def test_a_key_of_another_type_names_its_column() -> None:
    """The key of a row that has no key is shown as it came."""
    schema = table("t", {"id": "INT64"}, {"v": "INT64"})
    with pytest.raises(RecordUnreadable, match=r"key \{'id': b''\}: the value of the column `id`"):
        values_to_batch(schema, [b"", to_value("1").SerializeToString()])
