"""Keys in a table's initial copy: each is found by its value, for every type."""

from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.rows.row_key import KeyColumn, parse_key
from cdc_platform.pipeline.on_demand import copied_row
from cdc_platform.pipeline.on_demand.copied_row import source_json

VALUES: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "boolean": (pa.bool_(), [True, False], ["true", "false"]),
    "long": (pa.int64(), [1, -(2**63)], ["1", "-9223372036854775808"]),
    "float": (pa.float32(), [0.1, nan, inf, -inf], ["0.1", "NaN", "Infinity", "-Infinity"]),
    "double": (pa.float64(), [0.1, nan, inf, -inf], ["0.1", "NaN", "Infinity", "-Infinity"]),
    "decimal": (
        pa.decimal128(38, 9),
        [Decimal("1.5"), Decimal("-" + "9" * 29 + "." + "9" * 9)],
        ["1.50", f"-{'9' * 29}.{'9' * 9}"],
    ),
    "string": (pa.string(), ["a", "null"], ["a", "null"]),
    "binary": (pa.binary(), [b"\x00\xff", b""], ["AP8=", ""]),
    "date": (pa.date32(), [date(2024, 2, 29), date(1, 1, 1)], ["2024-02-29", "0001-01-01"]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 31, 8, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
        ["2026-01-31T09:00:00+01:00", "0001-01-01T00:00:00Z"],
    ),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of one pipeline."""
    folder: Path = tmp_path_factory.mktemp("lake")
    return Lake(LakeSettings(str(folder)), "bank")


@pytest.mark.parametrize("name", VALUES)
def test_a_copied_key_is_found(lake: Lake, name: str) -> None:
    """The filter of a key that a user types finds its row, and no other."""
    kind, values, texts = VALUES[name]
    rows = pa.table({"id": pa.array([*values, None], kind), "row": [*range(len(values)), -1]})
    table = lake.catalog.create_table(f"bank.{name}", rows.schema)
    table.append(rows)
    column = KeyColumn("id", str(table.schema().find_field("id").field_type))

    def find(text: str) -> Any:
        condition = copied_row._is_key(parse_key(name, (column,), text))  # noqa: SLF001  a copy takes Spark
        return table.scan(condition).to_arrow()["row"].to_pylist()

    assert [[row] for row in range(len(values))] == [find(text) for text in texts]
    assert find('{"id": null}') == [-1]


@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        (True, True),
        (-(2**63), "-9223372036854775808"),
        (Decimal("1.500000000"), "1.5"),
        (Decimal("1200.000000000"), "1200"),
        (Decimal("0E-9"), "0"),
        (Decimal("-" + "9" * 29 + "." + "9" * 9), f"-{'9' * 29}.{'9' * 9}"),
        (0.5, 0.5),
        (nan, "NaN"),
        (inf, "Infinity"),
        (-inf, "-Infinity"),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03Z"),
        (datetime(2024, 2, 29, 1, 2, 30, 120_000, tzinfo=UTC), "2024-02-29T01:02:30.12Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (date(2024, 2, 29), "2024-02-29"),
        (b"\x00\xff", "AP8="),
        ([1.0, inf, None], [1.0, "Infinity", None]),
    ],
)
def test_a_copied_value_is_written_as_the_log_has_it(value: object, json_value: object) -> None:
    """Numbers and moments are as short as Spanner's, and JSON has a word for each of them."""
    assert json_value == source_json(value)
