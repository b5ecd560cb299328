"""Tables whose primary key changes its type in place."""

import base64
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.settings import LakeSettings
from cdc_platform.model.looks import Look
from cdc_platform.model.records import ModType, ValueCaptureType
from cdc_platform.model.table_options import TableOptions
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.table_checks import check_fold, check_histories
from cdc_platform.pipeline.verdict import EVERYTHING
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.history import RawRow
from cdc_platform_tests.pipelines import (
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
    source_of(pipeline).look_at = lambda micros: Look(
        micros, (before if micros < START + 2 * SECOND else after,), {}, {}
    )
    return pipeline


def write(schema: TableSchema, mod_type: ModType, key: str, value: str, second: int) -> RawRow:
    """Return the record of a row that is written, by the table as it is then."""
    keys = {schema.key_columns[0].name: key}
    at, capture = START + second * SECOND, ValueCaptureType.NEW_ROW
    return data_change(
        schema.name, mod_type, (keys, {"v": value}), at_micros=at, transaction=value, capture=capture,
        schema=schema,
    )  # fmt: skip


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
    for check in (check_fold, check_histories):
        verdict = check(pipeline, spark, EVERYTHING)
        assert verdict.passed, verdict.summary
