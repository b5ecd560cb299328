"""Table schemas: types of the source, however they are written, and their types in the lake."""

import pytest

from cdc_platform.model.table_schema import ColumnType, spark_type
from cdc_platform_tests.example_tables import ORDERS
from cdc_platform_tests.history import type_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOL", "boolean"),
        ("INT64", "bigint"),
        ("FLOAT32", "float"),
        ("FLOAT64", "double"),
        ("NUMERIC", "decimal(38,9)"),
        ("STRING(MAX)", "string"),
        ("BYTES(16)", "binary"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp"),
        ("JSON", "string"),
        ("ARRAY<STRING(36)>", "array<string>"),
        ("ARRAY<FLOAT32>(vector_length=>128)", "array<float>"),
        ("PROTO<bank.Account>", "string"),  # unknown types keep the text of their JSON
        ("ARRAY<HOLOGRAM>", "array<string>"),
    ],
)
def test_types_in_the_lake(text: str, expected: str) -> None:
    """Every type of the source has a type in the lake, unknown ones too."""
    column_type = ColumnType.from_spanner_type(text)
    assert expected == spark_type(column_type)
    assert column_type == ColumnType.from_json(type_json(column_type))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"code": "INT64"}', "bigint"),
        ('{"code": "ARRAY", "array_element_type": {"code": "DATE"}}', "array<date>"),
        ('{"code": "ARRAY", "arrayElementType": {"code": "DATE"}}', "array<date>"),
        ('{"code": "NUMERIC", "type_annotation": "PG_NUMERIC"}', "string"),  # wider than any decimal
        ('{"code": "JSON", "typeAnnotation": "PG_JSONB"}', "string"),
        ('{"code": "INT64", "type_annotation": "PG_OID"}', "bigint"),
    ],
)
def test_types_of_column_types(text: str, expected: str) -> None:
    """The JSON of `column_types` is read in both spellings of its field names."""
    assert expected == spark_type(ColumnType.from_json(text))


def test_key_and_value_columns() -> None:
    """A table is divided into its key, in the order of the key, and the rest."""
    assert [column.name for column in ORDERS.key_columns] == ["region", "order_id"]
    assert [column.name for column in ORDERS.value_columns] == [
        "amount",
        "placed_at",
        "receipt",
        "details",
        "tags",
    ]
