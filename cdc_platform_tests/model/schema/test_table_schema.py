"""Table schemas: types of the source, in all spellings, and their types in the lake."""

from typing import Any

import pytest

from cdc_platform.model.schema.table_schema import DECIMAL, MAX_DIMENSIONS, ColumnType, spark_type
from cdc_platform_tests.example_tables import ORDERS
from cdc_platform_tests.support.history import type_json


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
        ("PROTO<bank.Account>", "binary"),
        ("ENUM<bank.Kind>", "bigint"),
        ("UUID", "string"),
        ("INTERVAL", "string"),
        ("ARRAY<HOLOGRAM>", "array<string>"),  # unknown types keep the text of their JSON
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


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("boolean", "BOOL", "boolean"),
        ("bigint", "INT64", "bigint"),
        ("oid", "INT64", "bigint"),
        ("real", "FLOAT32", "float"),
        ("double precision", "FLOAT64", "double"),
        ("numeric", "NUMERIC", "string"),  # wider than any decimal, and it has NaN
        ("character varying(20)", "STRING", "string"),
        ("character varying", "STRING", "string"),
        ("bytea", "BYTES", "binary"),
        ("date", "DATE", "date"),
        ("timestamp with time zone", "TIMESTAMP", "timestamp"),
        ("spanner.commit_timestamp", "TIMESTAMP", "timestamp"),
        ("jsonb", "JSON", "string"),
        ("uuid", "UUID", "string"),
        ("interval", "INTERVAL", "string"),
        ("numeric[]", "ARRAY", "array<string>"),
        ("character varying(9)[]", "ARRAY", "array<string>"),
        ("double precision[] vector length 128", "ARRAY", "array<double>"),
        ("hologram", "hologram", "string"),
        ("hologram[]", "ARRAY", "array<string>"),
    ],
)
def test_types_of_postgresql(text: str, code: str, expected: str) -> None:
    """PostgreSQL's names lead to the same types."""
    column_type = ColumnType.from_postgresql_type(text)
    assert (code, expected) == (column_type.code, spark_type(column_type))
    assert column_type.is_known != ("hologram" in text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("TIMESTAMP", "string"), ("ARRAY<TIMESTAMP>", "array<string>"), ("INT64", "bigint")],
)
def test_nanoseconds_make_timestamps_texts(text: str, expected: str) -> None:
    """A timestamp whose nanoseconds count is text in the lake; other types stay what they are."""
    assert expected == spark_type(ColumnType.from_spanner_type(text).with_nanoseconds())


def test_types_are_named_in_messages() -> None:
    """A type that shares its code with another one is called by its own name."""
    assert ColumnType.from_postgresql_type("numeric[]").text == "ARRAY<PG_NUMERIC>"
    assert ColumnType.from_spanner_type("TIMESTAMP").with_nanoseconds().text == "TIMESTAMP"


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


@pytest.mark.parametrize(
    "annotation", ["5,12", "5,10", "\u00b2,1", "0,0", "39,0", "5", "", "5,1,1", "1" * 50 + ",0"]
)
def test_a_decimal_that_spark_does_not_have_is_text(annotation: str) -> None:
    """No declaration of a source makes DDL that cannot be parsed."""
    assert spark_type(ColumnType(DECIMAL, annotation=annotation)) == "string"


def test_an_array_has_so_many_dimensions_at_most() -> None:
    """A type that is deeper is none."""
    fields: dict[str, Any] = {"code": "INT64"}
    for _ in range(MAX_DIMENSIONS):
        fields = {"code": "ARRAY", "array_element_type": fields}
    assert ColumnType.from_json(fields).text.count("ARRAY") == MAX_DIMENSIONS
    with pytest.raises(ValueError, match="dimensions"):
        ColumnType.from_json({"code": "ARRAY", "array_element_type": fields})
