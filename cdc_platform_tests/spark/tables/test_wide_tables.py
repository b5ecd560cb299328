"""Values of tables with many columns, all of which are cast to each type, and of tables with few."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.model.schema.table_schema import ColumnType, TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM, SourceCapabilities
from cdc_platform.spark.frames import casts
from cdc_platform.spark.log import faults
from cdc_platform.spark.log.faults import fault_of
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
KEYS: Final[tuple[dict[str, str | None], ...]] = (
    {"id": "1", "at": "2024-02-29T00:00:00Z"},
    {"id": "1", "at": "2024-02-29T00:00:00.1234567Z"},
    {"id": "2024-02-29", "at": "2024-02-29T00:00:00Z"},
    {"id": None, "at": "x"},
    {"of_key": "x"},
    {"new": "1"},
)
"""Keys that fit some of the tables."""
TYPES: Final = tuple(dict.fromkeys(text for text, _ in ODD))
OTHER: Final = ColumnType("A_LATER_TYPE")
NAMES: Final = ("it's", "back\\slash", "é😀", "tick`", 'quote"', "line\nbreak", "text", "name", "n", "c")
"""Names that a table with many columns may have, among them those that SQL uses inside."""


@pytest.mark.parametrize("has_nanoseconds", [False, True])
def test_many_columns_and_few_are_judged_alike(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, has_nanoseconds: bool
) -> None:
    """Whether all values are cast to a type or only those of its columns, the same ones are refused."""
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
    few, many, wide = faults_in_each_way(frame, [schema], monkeypatch)
    assert few == many == wide
    assert {True, False} == {fault is None for fault in few}


def test_each_table_is_judged_by_its_own_columns(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and keys of several tables are judged together, by the types of the same names in each."""
    tables = [
        table("it's", {"id": "INT64", "at": "TIMESTAMP"}, {"v": "INT64", "text": "STRING(MAX)"}),
        table("back\\slash", {"id": "DATE"}, {"v": "DATE", "w": "INT64"}),
        table("names", {"of_key": "STRING(MAX)"}, {}),
    ]
    others = [replace(schema, columns=(replace(schema.columns[0], name="new"),)) for schema in tables]
    made = [
        (schema, declared, (keys, values))
        for schema, other in zip(tables, others, strict=True)
        for declared in (schema, other, None)
        for keys in KEYS
        for values in ({"v": "1", "w": "1"}, {"v": "2024-02-29"}, {"v": None, "text": "x"}, {"w": "x"})
    ]
    records = [
        data_change(
            schema.name, ModType.INSERT, mod, at_micros=1, transaction=f"{number:09}", schema=declared
        )
        | {"cycle": 1}
        for number, (schema, declared, mod) in enumerate(
            [*made, (replace(tables[0], name="other"), *made[0][1:])]
        )
    ]
    few, many, wide = faults_in_each_way(spark.createDataFrame(raw_table(records)), tables, monkeypatch)
    assert few == many == wide
    assert {True, False} == {fault is None for fault in few}
    assert few[-1] is None, "other tables are not judged"


@pytest.mark.parametrize("capabilities", [CHANGE_STREAM, replace(CHANGE_STREAM, delivers_events=True)])
def test_the_number_of_tables_adds_no_conditions(capabilities: SourceCapabilities) -> None:
    """Spark would analyse a query with conditions for each column of hundreds of tables for a minute."""
    columns = {f"c{number}": kind for number, kind in enumerate(dict.fromkeys(TYPES))}
    tables = [table(f"t{number}", {"id": "INT64"}, columns) for number in range(400)]
    few, many = (fault_of(some, capabilities) for some in (tables[:40], tables))
    assert few.count("try_cast") == many.count("try_cast")
    assert few.count("(") == many.count("(")


def test_values_of_a_narrow_table_are_not_cast_to_each_type_because_another_table_is_wide() -> None:
    """Casts of values of other types take many times as long, and may be spared where columns are few."""
    wide = table("wide", {"id": "INT64"}, {f"c{number}": "INT64" for number in range(casts.WIDE_COLUMNS + 1)})
    narrow = table("narrow", {"id": "INT64"}, {"n": "INT64", "on": "DATE"})
    both, of_wide = fault_of([wide, narrow]), fault_of([wide])
    assert both.count("map_filter") == of_wide.count("map_filter") == 1
    assert both.count("try_cast") == of_wide.count("try_cast") + 2


def faults_in_each_way(
    frame: "DataFrame", tables: list[TableSchema], monkeypatch: pytest.MonkeyPatch
) -> list[list[str | None]]:
    """Return the fault of each change, with few columns, with many in narrow tables, and in wide ones."""
    found: list[list[str | None]] = []
    for compiled_columns, wide_columns in ((10_000, 10_000), (0, 10_000), (0, 0)):
        monkeypatch.setattr(faults, "MAX_COMPILED_COLUMNS", compiled_columns)
        monkeypatch.setattr(casts, "WIDE_COLUMNS", wide_columns)
        ordered = order_records(frame, 0, frame.count(), tables)
        found.append([row["fault"] for row in ordered.orderBy("ordinal").collect()])
    return found
