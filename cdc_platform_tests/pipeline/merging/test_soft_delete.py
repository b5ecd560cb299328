"""Deleted rows that stay: marked, as they last were, and alive again when they are inserted again."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cdc_platform.errors import CutNotFound, SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories, check_tables_equal_log
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    bank_pipeline,
    closing,
    expected_balances,
    feed_cycle,
    opening,
)
from cdc_platform_tests.support.pipelines import START, feed, found_table, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

SOFT = {"accounts": TableOptions(soft_delete=True)}
KEEPS_ALL = {"accounts": TableOptions(history=True, soft_delete=True)}


def with_options(pipeline: Pipeline, options: dict[str, TableOptions]) -> Pipeline:
    """Return the pipeline with other options of its tables."""
    return replace(pipeline, settings=replace(pipeline.settings, table_options=options))


def account_3(pipeline: Pipeline) -> dict[str, Any]:
    """Return the row of the account that the second cycle closes."""
    return next(row for row in rows_of(pipeline, "accounts") if row["id"] == 3)


def test_a_deleted_row_stays_and_comes_back(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """It keeps its values and its moment; inserted again, even in a later cycle, it is one row that lives."""
    pipeline = bank_pipeline(session_lake, **SOFT)
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    closed = {"id": 3, "owner": "owner 3", "balance": 100, "__deleted": True}
    assert {**closed, "__deleted_at": to_datetime(START + 2 * SECOND)} == account_3(pipeline)
    assert expected_balances(2) | {3: 100} == balances(pipeline)
    begun = START + 3 * SECOND
    feed(pipeline, begun + SECOND - 1, opening(3, 5, begun), opening(9, 1, begun + 1), closing(9, begun + 2))
    run_steps(pipeline, spark)
    back = {"id": 3, "owner": "owner 3", "balance": 5, "__deleted": False, "__deleted_at": None}
    assert back == account_3(pipeline)
    assert balances(pipeline) == {1: 90, 2: 110, 3: 5, 4: 100, 9: 1}
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def test_the_option_can_be_switched(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Switched on, the next cycle brings back all that the log has; off, a rebuild takes deleted rows out."""
    plain = bank_pipeline(session_lake)
    for number in (1, 2):
        feed_cycle(plain, number)
        run_steps(plain, spark)
    assert expected_balances(2) == balances(plain)
    soft = with_options(plain, KEEPS_ALL)
    run_steps(soft, spark)
    assert check_histories(soft, spark, EVERYTHING).passed
    assert sorted(row["id"] for row in rows_of(soft, "accounts__history")) == [1, 1, 2, 2, 3, 4]
    assert expected_balances(2) | {3: 100} == balances(soft)
    assert {row["__deleted"] for row in rows_of(soft, "accounts")} == {True, False}
    with pytest.raises(SettingError, match="soft_delete` was true"):
        run_steps(plain, spark)
    rebuild_table(plain, spark, "accounts")
    assert expected_balances(2) == balances(plain)
    assert "__deleted" not in found_table(plain, "accounts").schema().column_names
    feed_cycle(plain, 3)
    run_steps(plain, spark)
    assert expected_balances(3) == balances(plain)
    assert check_tables_equal_log(plain, spark, EVERYTHING).passed


def test_no_rebuild_starts_from_a_cut_of_another_setting(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Deleted rows of its version would live again, or nothing would show which of its rows are deleted."""
    soft = bank_pipeline(session_lake, **SOFT)
    plain = with_options(soft, {})
    for number in (1, 2):
        feed_cycle(soft, number)
        run_steps(soft, spark)
    with pytest.raises(CutNotFound, match="has deleted rows at cut 2"):
        rebuild_table(plain, spark, "accounts", 2)
    rebuild_table(plain, spark, "accounts")
    assert expected_balances(2) == balances(plain)
    assert check_tables_equal_log(plain, spark, EVERYTHING).passed
    newest = newest_cut(plain.lake)
    assert newest is not None
    run_steps(soft, spark)
    for cut, problem in ((2, r"dropped in the lake.*: __deleted, __deleted_at"), (newest.cut, r"no deleted")):
        with pytest.raises(CutNotFound, match=problem):
            rebuild_table(soft, spark, "accounts", cut)
    rebuild_table(soft, spark, "accounts", newest.cut + 1)
    assert expected_balances(2) | {3: 100} == balances(soft)
    assert check_tables_equal_log(soft, spark, EVERYTHING).passed


def test_a_merge_of_a_run_without_the_option_is_not_published(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A run that ends before it publishes leaves a version without the columns of a later option."""
    plain = bank_pipeline(session_lake)
    feed_cycle(plain, 1)
    run_steps(plain, spark)
    feed_cycle(plain, 2)
    order_changes(plain, spark)
    merge_tables(plain, spark, plain.tables)
    soft = with_options(plain, SOFT)
    run_steps(soft, spark)
    assert expected_balances(2) | {3: 100} == balances(soft)
    assert check_tables_equal_log(soft, spark, EVERYTHING).passed
