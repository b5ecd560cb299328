"""Columns of types that users have made: the schema block states what they are, their name does not."""

import json
from typing import Any, Final

import pytest

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform_tests.sources.debezium.written_events import envelope, line, only_event

ENUM: Final = {"type": "string", "name": "io.debezium.data.Enum"}
DECIMAL: Final = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
CASES: Final[list[tuple[str, dict[str, Any], Any, Any, ColumnType]]] = [
    # name that the connector propagates, block, a value as it arrives and in the log, type in the lake
    ("POSITIVE", {"type": "int32"}, 7, 7, ColumnType("INT64")),
    ('"FAR"."POSITIVE"', {"type": "int32"}, 7, 7, ColumnType("INT64")),
    ("_US", {"type": "int32"}, 7, 7, ColumnType("INT64")),
    ("PRICE", DECIMAL, "AJY=", "1.50", ColumnType("DECIMAL", annotation="10,2")),
    ("BIRTH", {"type": "int32", "name": "io.debezium.time.Date"}, 19_782, "2024-02-29", ColumnType("DATE")),
    ("OCTETS", {"type": "bytes"}, "/wA=", "/wA=", ColumnType("BYTES")),
    (
        "INTS",
        {"type": "array", "items": {"type": "int32"}},
        [1],
        [1],
        ColumnType("ARRAY", ColumnType("INT64")),
    ),
    ("_MOOD", ENUM, "sad", "sad", ColumnType("STRING")),
    ("__MOOD", {"type": "array", "items": ENUM}, ["sad"], ["sad"], ColumnType("ARRAY", ColumnType("STRING"))),
    (
        '"FAR"."_MY MOOD"',
        {"type": "array", "items": ENUM},
        ["sad"],
        ["sad"],
        ColumnType("ARRAY", ColumnType("STRING")),
    ),
    (
        "VECTOR",
        {"type": "array", "items": {"type": "double"}},
        [1.5],
        [1.5],
        ColumnType("ARRAY", ColumnType("FLOAT64")),
    ),
]


@pytest.mark.parametrize(("name", "block", "arriving", "expected", "column_type"), CASES)
def test_a_user_s_type_is_what_its_block_says(
    name: str, block: dict[str, Any], arriving: Any, expected: Any, column_type: ColumnType
) -> None:
    """Its name says nothing, not even whether it is an array: a name may begin with an underscore."""
    parameters = {**block.get("parameters", {}), "__debezium.source.column.type": name}
    columns = [
        {"field": "id", "type": "int64", "optional": False},
        {**block, "field": "big", "optional": True, "parameters": parameters},
    ]
    schema = {"fields": [{"field": "after", "fields": columns}]}
    inserted = line({"schema": schema, "payload": envelope("c", after={"id": 1, "big": arriving})}, {"id": 1})
    event = only_event(inserted, columns={})
    types = {column["name"]: column["type"] for column in json.loads(event.column_types)}
    assert json.loads(event.new_values or "") == {"big": expected}
    assert column_type.to_fields() == types["big"]
