"""Primary keys that change their type in place, and tables that are recreated with another one."""

import base64
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories, check_tables_equal_log
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    data_change,
    feed,
    make_pipeline,
    quarantined_rows,
    rows_of,
    run_steps,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

SECOND = 1_000_000
TEXT = table("notes", {"id": "STRING(MAX)"}, {"v": "STRING(MAX)"})
BINARY = table("notes", {"id": "BYTES(MAX)"}, {"v": "STRING(MAX)"})
KEY = "no base64!"
KEY_TEXTS = {"STRING": KEY, "BYTES": base64.b64encode(KEY.encode()).decode()}


def changing(lake: LakeSettings, before: TableSchema, after: TableSchema) -> Pipeline:
    """Return a pipeline on a table that has another key behind its first second, with a history."""
    pipeline = make_pipeline(lake, (), options={"notes": TableOptions(history=True)})
    source_of(pipeline).schemas = (before,)
    source_of(pipeline).schema_at = lambda micros: SchemaRead(
        micros, (before if micros < START + 2 * SECOND else after,), {}, {}
    )
    return pipeline


def write(schema: TableSchema, mod_type: ModType, key: str, value: str, second: float) -> RawRow:
    """Return the record of a row that is written, by the table as it is then; all of its key is alike."""
    keys = {column.name: key for column in schema.key_columns}
    values = {column.name: key for column in schema.value_columns} | {"v": value}
    at, capture = START + int(second * SECOND), ValueCaptureType.NEW_ROW
    return data_change(
        schema.name, mod_type, (keys, values), at_micros=at, transaction=value, capture=capture,
        schema=schema,
    )  # fmt: skip


def assert_equals_log(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Assert that table and history are what the whole log makes of them."""
    for check in (check_tables_equal_log, check_histories):
        result = check(pipeline, spark, EVERYTHING)
        assert result.passed, result.summary


@pytest.mark.parametrize(("before", "after"), [(TEXT, BINARY), (BINARY, TEXT)], ids=["bytes", "string"])
def test_a_key_that_changes_its_type_names_the_same_rows(
    spark: "SparkSession", session_lake: LakeSettings, before: TableSchema, after: TableSchema
) -> None:
    """Written under its new text, a row is the same; nothing is set aside, and the log proves the table."""
    pipeline = changing(session_lake, before, after)
    old, new = (KEY_TEXTS[schema.key_columns[0].type.code] for schema in (before, after))
    feed(pipeline, START + SECOND, write(before, ModType.INSERT, old, "one", 1))
    run_steps(pipeline, spark)
    feed(pipeline, START + 2 * SECOND, write(after, ModType.UPDATE, new, "two", 2))
    run_steps(pipeline, spark)
    feed(pipeline, START + 3 * SECOND, write(after, ModType.UPDATE, new, "three", 3))
    run_steps(pipeline, spark)

    assert quarantined_rows(pipeline) == []
    key = KEY if after is TEXT else KEY.encode()
    assert [(row["id"], row["v"]) for row in rows_of(pipeline, "notes")] == [(key, "three")]
    assert_equals_log(pipeline, spark)


NUMBER = table("notes", {"id": "INT64"}, {"v": "STRING(MAX)"})
CODE = table("notes", {"code": "STRING(MAX)"}, {"v": "STRING(MAX)"})
WIDER = table("notes", {"id": "INT64", "part": "INT64"}, {"v": "STRING(MAX)"})
FORMER = table("notes", {"part": "INT64"}, {"v": "STRING(MAX)", "id": "INT64"})
REMADE = [
    # before, after, key before, keys after
    pytest.param(NUMBER, CODE, "1", "xyz", id="another column"),
    pytest.param(NUMBER, TEXT, "1", "xyz", id="another type"),
    pytest.param(NUMBER, WIDER, "1", "123", id="one column more"),
    pytest.param(WIDER, NUMBER, "1", "123", id="one column less"),
    pytest.param(WIDER, FORMER, "1", "123", id="a value that was key"),
]


@pytest.mark.parametrize(("before", "after", "key", "keys"), REMADE)
def test_a_table_recreated_with_another_key_begins_empty(
    spark: "SparkSession",
    session_lake: LakeSettings,
    before: TableSchema,
    after: TableSchema,
    key: str,
    keys: str,
) -> None:
    """Dropped and recreated between two cycles, it has the new rows only; nothing is set aside or differs."""
    pipeline = changing(session_lake, before, after)
    feed(pipeline, START + SECOND, write(before, ModType.INSERT, key, "old", 1))
    run_steps(pipeline, spark)
    older = write(before, ModType.UPDATE, key, "older", 1.5)
    new = [write(after, ModType.INSERT, key, f"new {key}", 2) for key in keys]
    feed(pipeline, START + 3 * SECOND, older, *new)
    run_steps(pipeline, spark)
    feed(pipeline, START + 4 * SECOND, write(after, ModType.UPDATE, keys[0], "newer", 4))
    run_steps(pipeline, spark)

    assert quarantined_rows(pipeline) == []
    names = [column.name for column in after.columns]
    expected = [{name: typed(after, name, key) for name in names} for key in keys]
    expected = [row | {"v": f"new {key}"} for row, key in zip(expected, keys, strict=True)]
    expected[0]["v"] = "newer"
    stored = [{name: row[name] for name in names} for row in rows_of(pipeline, "notes")]
    assert expected == sorted(stored, key=lambda row: str(row[names[0]]))
    key_columns = pipeline.table("notes").key_columns
    assert [column.name for column in after.key_columns] == [column.name for column in key_columns]
    assert_equals_log(pipeline, spark)
    rebuild_table(pipeline, spark, "notes")
    assert sorted(map(repr, stored)) == sorted(
        repr({name: row[name] for name in names}) for row in rows_of(pipeline, "notes")
    )


def typed(schema: TableSchema, name: str, text: str) -> object:
    """Return the text of a value as the lake has it."""
    code = next(column.type.code for column in schema.columns if column.name == name)
    return int(text) if code == "INT64" else text
