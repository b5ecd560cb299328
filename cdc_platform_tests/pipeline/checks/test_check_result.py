"""The settings of the session under which checks run."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pytest
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.checks import check_result
from cdc_platform.pipeline.checks.check_result import checking
from cdc_platform.pipeline.checks.running_checks import CheckRunner
from cdc_platform.spark.session.session_settings import changed_settings
from cdc_platform_tests.pipeline.bank import bank_pipeline, feed_cycle
from cdc_platform_tests.support.pipelines import CHECKS, found_table, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPILES = "spark.sql.codegen.wholeStage"


@pytest.mark.integration
def test_only_queries_of_a_large_lake_are_compiled(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One large or unreadable table is enough; afterwards the session is as it was."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    with changed_settings(spark, {COMPILES: "true"}):
        with checking(pipeline, spark, CHECKS):
            assert spark.conf.get(COMPILES) == "false"
        # The bank has three accounts, and as many changes.
        with monkeypatch.context() as patch:
            patch.setattr(check_result, "SMALL_LAKE_ROWS", 2)
            with checking(pipeline, spark, CHECKS):
                assert spark.conf.get(COMPILES) == "true"
        damaged = Path(unquote(urlparse(found_table(pipeline, "accounts").metadata_location).path))
        damaged.unlink()
        # A process that has read a metadata file does not read it again.
        with checking(replace(pipeline, lake=replace(pipeline.lake)), spark, CHECKS):
            assert spark.conf.get(COMPILES) == "true"
        assert spark.conf.get(COMPILES) == "true"


@pytest.mark.integration
def test_the_checks_of_cycles_load_no_merged_table(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run every few seconds, and a pipeline may have hundreds of tables; other checks read them."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    names: list[str] = []
    load = Lake.table

    def count(lake: Lake, name: str) -> Table | None:
        names.append(name)
        return load(lake, name)

    monkeypatch.setattr(Lake, "table", count)
    CheckRunner(pipeline, spark).run_due()
    assert names == []
    with checking(pipeline, spark, [check for check in CHECKS if not check.every_cycle]):
        assert {table.name for table in pipeline.tables} == {*names}
