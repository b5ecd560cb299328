"""Values of a table with many columns, which are judged by type, and those of one with few, by column."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.model.stream.records import ModType
from cdc_platform.spark.frames import casts
from cdc_platform.spark.log.order import order_records
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.spark.tables.value_texts import UNFIT, VALUES, with_nanoseconds
from cdc_platform_tests.support.pipelines import data_change, raw_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

ODD: Final = (
    *UNFIT,
    *((text, value) for text, value, _ in VALUES),
    ("FLOAT64", '"1d"'),
    ("FLOAT64", '" 1 "'),
    ("INT64", '" 1"'),
    ("INT64", "1.0"),
    ("INT64", "true"),
    ("INT64", "[1]"),
    ("BOOL", '"t"'),
    ("DATE", '"2024-02"'),
    ("TIMESTAMP", '""'),
    ("BYTES(9)", '"AP8"'),
    ("ARRAY<INT64>", "null"),
    ("ARRAY<INT64>", "{}"),
    ("ARRAY<DATE>", '["2024-02-30", null]'),
)
"""Values that fit the type of a column, and such that do not."""
TYPES: Final = tuple(dict.fromkeys(text for text, _ in ODD))
OTHER: Final = ColumnType("A_LATER_TYPE")
NAMES: Final = ("it's", "back\\slash", "é😀", "tick`", 'quote"', "line\nbreak", "text", "name", "n", "c")
"""Names that a table with many columns may have, among them those that SQL uses inside."""


@pytest.mark.parametrize("has_nanoseconds", [False, True])
def test_many_columns_and_few_are_judged_alike(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, has_nanoseconds: bool
) -> None:
    """Whether values are judged by type or by column, the same ones are refused, for the same reason."""
    types = {f"{name} {number}": kind for number, kind in enumerate(TYPES) for name in NAMES[number % 3 :: 3]}
    schema = table("t", {"id": "INT64"}, types)
    schema = with_nanoseconds(schema) if has_nanoseconds else schema
    others = replace(schema, columns=tuple(replace(column, type=OTHER) for column in schema.columns))
    made = [
        (({"id": "1"}, {column.name: json.loads(value)}), declared)
        for column in schema.value_columns
        for text, value in ODD
        if text == types[column.name]
        for declared in (schema, others, None)
    ]
    records = [
        data_change("t", ModType.INSERT, mod, at_micros=1, transaction=f"{number:09}", schema=declared)
        | {"cycle": 1}
        for number, (mod, declared) in enumerate(made)
    ]
    frame = spark.createDataFrame(raw_table(records))
    monkeypatch.setattr(casts, "WIDE_COLUMNS", 10_000)
    by_column = faults_of(order_records(frame, 0, len(records), [schema]))
    monkeypatch.setattr(casts, "WIDE_COLUMNS", 0)
    assert by_column == faults_of(order_records(frame, 0, len(records), [schema]))
    assert {True, False} == {fault is None for fault in by_column}


def faults_of(ordered: "DataFrame") -> list[str | None]:
    """Return the fault of each change."""
    return [row["fault"] for row in ordered.orderBy("ordinal").collect()]
