"""Few net changes are merged by the process that runs the cycle; the rest is Spark's."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import fact, head
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.merging import build, local_merge
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    bank_pipeline,
    busy,
    expected_balances,
    feed_cycle,
    wait,
)
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    START,
    data_change,
    feed,
    found_table,
    make_pipeline,
    rows_of,
    run_steps,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

LOCAL: Final = "cdc_platform"
SPARK: Final = "spark"


def merged_by(pipeline: Pipeline, name: str) -> str | None:
    """Return what made the newest version of a table."""
    newest = head(found_table(pipeline, name))
    assert newest is not None
    return fact(newest, "engine-name")


def test_what_this_process_has_read_is_not_measured_again(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cycle that was read by this process, Spark computes the net changes and does nothing else."""
    monkeypatch.setattr(build, "measure_net_changes", None)
    pipeline = busy(bank_pipeline(session_lake))
    for _ in range(2):
        wait(pipeline, 1)
        run_cycle(pipeline, spark)
    assert merged_by(pipeline, "accounts") == LOCAL
    assert len(rows_of(pipeline, "accounts")) == 2


def no_bound(pipeline: Pipeline, _patch: pytest.MonkeyPatch) -> Pipeline:
    """Leave all bounds as they are."""
    return pipeline


def no_files(pipeline: Pipeline, net_changes: pytest.MonkeyPatch) -> Pipeline:
    """Let tables of any file be too large."""
    net_changes.setattr(local_merge, "MAX_FILES", -1)
    return pipeline


def no_rows(pipeline: Pipeline, net_changes: pytest.MonkeyPatch) -> Pipeline:
    """Let any row be too many to look among."""
    net_changes.setattr(local_merge, "MAX_ROWS", 0)
    return pipeline


def no_bytes_read(pipeline: Pipeline, net_changes: pytest.MonkeyPatch) -> Pipeline:
    """Let any key be too long to be read."""
    net_changes.setattr(local_merge, "MAX_READ_BYTES", 0)
    return pipeline


def few_bytes(pipeline: Pipeline, _patch: pytest.MonkeyPatch) -> Pipeline:
    """Let the setting be less than a row takes."""
    return replace(pipeline, settings=replace(pipeline.settings, local_merge_bytes=1))


def never(pipeline: Pipeline, _patch: pytest.MonkeyPatch) -> Pipeline:
    """Let the setting forbid it."""
    return replace(pipeline, settings=replace(pipeline.settings, local_merge_bytes=0))


BOUNDS: Final = {
    "none, twice": (no_bound, LOCAL),
    "none": (no_bound, LOCAL),
    "files": (no_files, SPARK),
    "rows to look among": (no_rows, SPARK),
    "bytes to read": (no_bytes_read, SPARK),
    "bytes of net changes": (few_bytes, SPARK),
    "none may be merged locally": (never, SPARK),
}


def test_few_net_changes_are_merged_locally_and_many_by_spark(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local commit appends inserted keys and merges existing ones; beyond any of the bounds, Spark does."""
    pipeline = bank_pipeline(session_lake)
    for number, (name, (bound, merger)) in enumerate(BOUNDS.items(), start=1):
        feed_cycle(pipeline, number)
        with monkeypatch.context() as patch:
            run_steps(bound(pipeline, patch), spark)
        assert (name, expected_balances(number)) == (name, balances(pipeline))
        assert (name, merger) == (name, merged_by(pipeline, "accounts"))
    assert len(rows_of(pipeline, "transfers")) == len(BOUNDS) - 1


def changes(
    schema: TableSchema, *mods: tuple[ModType, dict[str, Any], dict[str, Any]], after_micros: int = START
) -> list[RawRow]:
    """Return a change a microsecond."""
    return [
        data_change(
            schema.name, kind, (key, values), at_micros=after_micros + n, transaction=f"{schema.name}-{n}"
        )
        for n, (kind, key, values) in enumerate(mods, 1)
    ]


def test_keys_of_floating_point_are_compared_by_spark(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """There 0.0 equals -0.0, and NaN itself."""
    schema = table("t", {"id": "FLOAT64"}, {"a": "INT64"})
    pipeline = make_pipeline(session_lake, (schema,))
    first = [(ModType.INSERT, {"id": key}, {"a": "1"}) for key in ("NaN", 0.0)]
    feed(pipeline, START + SECOND, *changes(schema, *first))
    run_steps(pipeline, spark)
    second = [(ModType.UPDATE, {"id": key}, {"a": "2"}) for key in ("NaN", -0.0)]
    late = [
        {**row, "record_timestamp": row["record_timestamp"].replace(second=59)}
        for row in changes(schema, *second)
    ]
    feed(pipeline, START + 60 * SECOND, *late)
    run_steps(pipeline, spark)
    assert [row["a"] for row in rows_of(pipeline, "t")] == [2, 2]
    assert merged_by(pipeline, "t") == SPARK


def test_a_column_that_somebody_has_added_is_left_to_spark(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Rows that are updated keep their values of it, and those that come are without."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    name = pipeline.lake.spark_table("accounts")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN mine INT")
    spark.sql(f"UPDATE {name} SET mine = 7")
    feed_cycle(pipeline, 2)
    run_steps(pipeline, spark)
    assert merged_by(pipeline, "accounts") == SPARK
    rows = rows_of(pipeline, "accounts")
    assert expected_balances(2) == {row["id"]: row["balance"] for row in rows}
    assert {row["id"]: row["mine"] for row in rows if row["id"] in {1, 2}} == {1: 7, 2: 7}
    assert {None} == {row["mine"] for row in rows if row["id"] not in {1, 2}}


COLUMNS: Final = {
    # Spark writes the sizes of the first hundred columns only.
    "many": ([f"c{n}" for n in range(130)], LOCAL),
    # A name that Arrow takes for itself.
    "strange": (["__filename"], SPARK),
}


def test_tables_of_many_or_strange_columns(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Their rows are right, too, and what a partial update does not name stays."""
    schemas = [
        table(name, {"id": "INT64"}, dict.fromkeys(columns, "STRING(9)"))
        for name, (columns, _) in COLUMNS.items()
    ]
    pipeline = make_pipeline(session_lake, schemas)
    rows = {name: dict.fromkeys(columns, "x") for name, (columns, _) in COLUMNS.items()}
    inserted = [
        row for schema in schemas for row in changes(schema, (ModType.INSERT, {"id": "1"}, rows[schema.name]))
    ]
    feed(pipeline, START + SECOND, *inserted)
    run_steps(pipeline, spark)
    updated = list[RawRow]()
    for schema in schemas:
        last = {schema.columns[-1].name: "y"}
        rows[schema.name] |= last
        net_changes = (ModType.UPDATE, {"id": "1"}, last)
        updated += changes(schema, net_changes, after_micros=START + 2 * SECOND)
    feed(pipeline, START + 3 * SECOND, *updated)
    run_steps(pipeline, spark)
    for name, (_, merger) in COLUMNS.items():
        by_spark = spark.table(pipeline.lake.spark_table(name)).collect()
        assert [{"id": 1, **rows[name]}] == [row.asDict() for row in by_spark]
        assert (name, merger) == (name, merged_by(pipeline, name))
