"""Columns of the lake that another program drops."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource
from cdc_platform_tests.support.changing.evolving_pipelines import follow, live_rows, read_until
from cdc_platform_tests.support.pipelines import START, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def write_and_read(
    pipeline: Pipeline, spark: "SparkSession", key: int, number: int, *sources: EvolvingSource
) -> int:
    """Let a row of each table be written and read, and return the moment."""
    for source in sources:
        source.write(str(key), number, ValueCaptureType.NEW_ROW, tuple(source.columns))
        source.end_step()
    now = START + (sources[0].step - 1) * STEP
    read_until(pipeline, now, *sources)
    run_steps(pipeline, spark)
    return now


def test_a_column_set_aside_that_another_program_drops_takes_no_values_along(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """It comes back empty, the column that has its name keeps its values, and a rebuild brings all back."""
    sources = [EvolvingSource(name, {"a": "STRING", "b": "STRING"}) for name in ("STRING", "INT64", "BYTES")]
    pipeline = follow(session_lake, *sources)
    write_and_read(pipeline, spark, 1, 1, *sources)
    for source in sources:
        source.alter("retype" if source.name == "BYTES" else "drop", "a", "")
    write_and_read(pipeline, spark, 2, 2, *sources)
    for source in sources:
        source.alter("add", "a", source.name)
    for key in (3, 4):
        write_and_read(pipeline, spark, key, key, *sources)
    for source in sources:
        spark.sql(f"ALTER TABLE {pipeline.lake.spark_table(source.name)} DROP COLUMN a__string")
    for source in sources:
        # In the same cycle, the source sets a second column aside.
        source.alter("drop", "b", "")
    write_and_read(pipeline, spark, 3, 6, *sources)
    for source in sources:
        source.alter("add", "b", "STRING")
    now = write_and_read(pipeline, spark, 5, 8, *sources)
    for source in sources:
        assert source.typed_rows_at(now) == live_rows(pipeline, source, now)
        assert {None} == {row["a__string"] for row in rows_of(pipeline, source.name)}
        with pytest.raises(CutNotFound, match=r"columns of .* have been dropped in the lake.*: a__string"):
            rebuild_table(pipeline, spark, source.name, 4)
        rebuild_table(pipeline, spark, source.name)
        assert source.typed_rows_at(now) == live_rows(pipeline, source, now)
        assert "v1" in {row["a__string"] for row in rows_of(pipeline, source.name)}
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
