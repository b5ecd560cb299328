"""Copies that another process completes and publishes while this one pauses."""

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH
from cdc_platform.lake.state.copies import COPY_BRANCH, load_copy_progress, load_plans
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.copying import chunks, copy
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.bank import NOW, balances, bank_of
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import feed, found_table, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROWS = 12


def publish(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Copy everything, and publish a cut."""
    while copy_tables(pipeline, spark).is_pending:
        pass
    run_steps(pipeline, spark)


PAUSES: Final = (
    (copy, "copy_chunks"),  # before the look
    (chunks, "align_branch"),  # after the look
    (chunks, "_columns_of_table"),  # before the commit
    (chunks, "load_copy_progress"),
)


def test_a_copy_that_another_process_has_published_is_not_copied_again(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the paused process does then, the copy stays whole, and rows are in it once."""
    for module, name in PAUSES:
        pipeline = bank_of(session_lake, ROWS)
        feed(pipeline, NOW)
        interrupt_once(monkeypatch, module, name, partial(publish, pipeline, spark))
        copy_tables(pipeline, spark)
        assert len(list_cuts(pipeline.lake)) == 1
        table = found_table(pipeline, "accounts")
        progress = load_copy_progress(table, load_plans(pipeline.lake)["accounts"])
        assert progress.is_complete
        assert progress.rows == ROWS
        copied = rows_of(pipeline, "accounts", table.metadata.refs[COPY_BRANCH].snapshot_id)
        assert [*range(1, ROWS + 1)] == sorted(row["id"] for row in copied)
    feed(pipeline, NOW + 10)
    rebuild_table(pipeline, spark, "accounts")
    assert list(range(1, ROWS + 1)) == sorted(balances(pipeline))
    assert BRANCH in found_table(pipeline, "accounts").metadata.refs
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
