"""Names that come up again at the source: in another case, or as those of what the lake has set aside."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource
from cdc_platform_tests.support.evolving_pipelines import follow, live_rows, read_until
from cdc_platform_tests.support.pipelines import START, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

WHOLE = ValueCaptureType.NEW_ROW


def write(source: EvolvingSource, number: int) -> None:
    """Let a row be written with all columns that the table has, and a step end."""
    source.write(str(number), number, WHOLE, tuple(source.columns))
    source.end_step()


def alter(source: EvolvingSource, kind: str, name: str, code: str = "") -> None:
    """Let a column be altered, and a step end."""
    source.alter(kind, name, code)
    source.end_step()


def catch_up(pipeline: Pipeline, spark: "SparkSession", source: EvolvingSource) -> int:
    """Let a cycle read all that has happened, and return its moment."""
    now = START + (source.step - 1) * STEP
    read_until(pipeline, now, source)
    run_steps(pipeline, spark)
    return now


def assert_proven(pipeline: Pipeline, spark: "SparkSession", source: EvolvingSource, now: int) -> None:
    """Assert that the table equals the source and the log, and goes on to do so when it is recreated."""
    assert source.typed_rows_at(now) == live_rows(pipeline, source, now)
    result = check_tables_equal_log(pipeline, spark, EVERYTHING)
    assert result.passed, result.summary
    rebuild_table(pipeline, spark, source.name)
    assert source.typed_rows_at(now) == live_rows(pipeline, source, now)


@pytest.mark.parametrize("has_cycle_between", [True, False], ids=["two cycles", "one cycle"])
def test_a_column_comes_back_in_another_case(
    spark: "SparkSession", session_lake: LakeSettings, *, has_cycle_between: bool
) -> None:
    """It is another column without the values of before, which are set aside."""
    source = EvolvingSource(columns={"Note": "STRING", "b": "STRING"})
    pipeline = follow(session_lake, source)
    write(source, 1)
    if has_cycle_between:
        catch_up(pipeline, spark, source)
    alter(source, "drop", "Note")
    alter(source, "add", "note", "INT64")
    write(source, 2)
    now = catch_up(pipeline, spark, source)
    assert {row["id"]: (row["Note__string"], row["note"]) for row in rows_of(pipeline, "notes")} == {
        1: ("v1", None),
        2: (None, 2),
    }
    assert_proven(pipeline, spark, source, now)


@pytest.mark.parametrize("code", ["INT64", "STRING"])
def test_a_new_column_has_the_name_of_what_was_set_aside(
    spark: "SparkSession", session_lake: LakeSettings, code: str
) -> None:
    """It has its own values only, and those of before stand under a further name."""
    source = EvolvingSource(columns={"note": "STRING", "b": "STRING"})
    pipeline = follow(session_lake, source)
    write(source, 1)
    catch_up(pipeline, spark, source)
    alter(source, "drop", "note")
    write(source, 2)
    catch_up(pipeline, spark, source)
    alter(source, "add", "note", code)
    write(source, 3)
    catch_up(pipeline, spark, source)
    alter(source, "add", "note__string", "STRING")
    write(source, 4)
    now = catch_up(pipeline, spark, source)
    assert [row["note__string_2"] for row in rows_of(pipeline, "notes")] == ["v1", None, None, None]
    assert_proven(pipeline, spark, source, now)
