"""The rows of the newest cycles of the log, which a step reads once for all tables."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.versions import recent_log
from cdc_platform.pipeline.versions.change_source import read_span
from cdc_platform.pipeline.versions.log_span import pending_span
from cdc_platform.pipeline.versions.recent_log import read_recent, read_recent_span
from cdc_platform_tests.pipeline.bank import balances, bank_pipeline, expected_balances, feed_cycle
from cdc_platform_tests.support.pipelines import merging_by_spark
from cdc_platform_tests.support.scans import watch_scans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_the_recent_rows_are_those_that_spark_reads(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the same columns, for each table and number of cycles; other cycles are left to Spark."""
    bank = bank_pipeline(session_lake)
    for number in (1, 2, 3):
        feed_cycle(bank, number)
        order_changes(bank, spark)
    recent = read_recent(bank, [pending_span(bank, name, 1) for name in ("accounts", "transfers")])
    for table in ("accounts", "transfers"):
        for after in (0, 1, 2, 3):
            span = pending_span(bank, table, after)
            expected = read_span(bank, spark, table, span)
            frame = read_recent_span(bank, spark, table, span, recent)
            assert expected.dtypes == frame.dtypes
            assert sorted(map(repr, expected.collect())) == sorted(map(repr, frame.collect()))
    monkeypatch.delattr(recent_log, "read_span")
    assert read_recent_span(bank, spark, "accounts", pending_span(bank, "accounts", 1), recent).count() > 0
    with pytest.raises(NameError):
        read_recent_span(bank, spark, "accounts", pending_span(bank, "accounts", 0), recent)


def test_a_step_reads_the_log_once_and_none_of_it_where_spark_merges(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads the log for each table only if this process may not hold the changes."""
    bank = bank_pipeline(session_lake)
    feed_cycle(bank, 1)
    order_changes(bank, spark)
    assert read_recent(merging_by_spark(bank), [pending_span(bank, "accounts", 0)]) is None
    monkeypatch.delattr(recent_log, "read_span")
    scans = watch_scans(monkeypatch)
    merge_tables(bank, spark, bank.tables)
    assert [condition for name, condition in scans if name == LOG] == ["cycle > 0 and cycle <= 1"]
    publish_cut(bank)
    assert expected_balances(1) == balances(bank)
