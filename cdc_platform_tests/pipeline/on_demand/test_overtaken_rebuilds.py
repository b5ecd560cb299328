"""A rebuild while another run merges and publishes: it is published and stays, or it says that it was not."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.cycle import finish_cycle
from cdc_platform.pipeline.histories import history_build
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging import merge
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand import rebuild
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.pipeline.bank import bank_pipeline, feed_next
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
HISTORY: Final = "accounts__history"


@pytest.fixture(scope="module")
def bank(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """The bank after two cycles; each test continues from the state of the previous one."""
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    for _ in range(2):
        feed_next(pipeline)
        _publish(pipeline, spark)
    return pipeline


def damage(bank: Pipeline, spark: "SparkSession", table: str) -> None:
    """Delete a row of a table that no later cycle changes, and publish the table with the next cycle."""
    spark.sql(f"DELETE FROM {bank.lake.spark_table(table)} WHERE id = 4")
    feed_next(bank)
    _publish(bank, spark)
    assert is_damaged(bank, table)


def is_damaged(bank: Pipeline, table: str) -> bool:
    """Return whether a table lacks the row."""
    return not any(row["id"] == 4 for row in rows_of(bank, table))


def _publish(bank: Pipeline, spark: "SparkSession") -> None:
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)
    extend_histories(bank, spark, bank.histories)
    publish_cut(bank)


@pytest.mark.parametrize(
    ("table", "module", "step"),
    [("accounts", merge, "run_builds"), (HISTORY, history_build, "run_history_builds")],
    ids=["table", "history"],
)
def test_a_merge_that_was_planned_before_a_rebuild_does_not_undo_it(
    spark: "SparkSession",
    bank: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    module: object,
    step: str,
) -> None:
    """Its base is the table as it was: published, the row that the rebuild brought back is gone again."""
    damage(bank, spark, table)
    feed_next(bank)
    order_changes(bank, spark)
    interrupt_once(monkeypatch, module, step, lambda: rebuild_table(bank, spark, table))
    with suppress(CommitConflict):
        _publish(bank, spark)
    finish_cycle(bank, spark)
    feed_next(bank)
    _publish(bank, spark)
    assert not is_damaged(bank, table)


@pytest.mark.parametrize("table", ["accounts", HISTORY])
def test_a_rebuild_that_another_run_replaces_says_so(
    spark: "SparkSession", bank: Pipeline, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A user who reads that the table is rebuilt would not start it again."""
    damage(bank, spark, table)

    def rival() -> None:
        feed_next(bank)
        _publish(bank, spark)

    interrupt_once(monkeypatch, rebuild, "merge_tables", rival)
    with pytest.raises(CommitConflict, match=f"rebuild of `{table}` began; start it again"):
        rebuild_table(bank, spark, table)
    rebuild_table(bank, spark, table)
    assert not is_damaged(bank, table)


def test_table_and_history_equal_the_log(bank: Pipeline, spark: "SparkSession") -> None:
    """They do so after all rebuilds and merges of this file."""
    assert failed_checks(bank, spark, "tables_equal_log", "histories_sound") == {}
