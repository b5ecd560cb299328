"""Checks on what continuous running is about to publish."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import CheckFailed
from cdc_platform.lake.cuts import newest_cut
from cdc_platform.lake.lake import LOG
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.pipeline.follow import follow_source
from cdc_platform.pipeline.guard import Guard
from cdc_platform.pipeline.merge import merge_tables
from cdc_platform.pipeline.order import order_changes
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.publish import publish_cut
from cdc_platform.pipeline.verdict import Check, Verdict
from cdc_platform_tests.pipeline.bank import bank_pipeline, feed_tick
from cdc_platform_tests.pipelines import CHECKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

NEVER_S = 3600.0
TICK_CHECKS = {check.name for check in CHECKS if check.every_tick}


def guarded(lake: LakeSettings, every_s: float) -> Pipeline:
    """Return the bank's pipeline, whose checks look so often."""
    pipeline = bank_pipeline(lake)
    return replace(pipeline, settings=replace(pipeline.settings, check_every_s=every_s))


def log_tick(pipeline: Pipeline, spark: "SparkSession", number: int) -> None:
    """Bring one of the bank's ticks into the log."""
    feed_tick(pipeline, number)
    order_changes(pipeline, spark)


def test_each_look_is_at_what_is_new(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Every check of a tick is made on the changes that no look has passed, and none before it is time."""
    pipeline = guarded(session_lake, 0)
    heard: list[tuple[str, int, object]] = []

    def hear(check: Check, verdict: Verdict, tick: int) -> None:
        heard.append((check.name, tick, verdict.facts.get("changes")))

    guard = Guard(pipeline, spark, hear)
    for number in (1, 2):
        log_tick(pipeline, spark, number)
        guard.look()
        merge_tables(pipeline, spark, pipeline.tables)
        publish_cut(pipeline, spark)
    assert {(name, tick) for name in TICK_CHECKS for tick in (1, 2)} == {found[:2] for found in heard}
    assert [changes for name, _, changes in heard if name == "exactly_once"] == [3, 5]
    rests = replace(pipeline, settings=replace(pipeline.settings, check_every_s=NEVER_S))
    Guard(rests, spark, hear).look()
    assert 2 * len(TICK_CHECKS) == len(heard)


def test_what_fails_is_not_published(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A log that fails a check ends the ticks, and those of the next start before they publish it."""
    pipeline = guarded(session_lake, NEVER_S)
    log_tick(pipeline, spark, 1)
    merge_tables(pipeline, spark, pipeline.tables)
    cut = publish_cut(pipeline, spark)
    log_tick(pipeline, spark, 2)
    log = pipeline.lake.system_table(LOG)
    log.append(log.scan(row_filter="tick = 2").to_arrow())
    for _ in range(2):
        with pytest.raises(CheckFailed, match="`exactly_once`: 10 changes, 5 of them repeated"):
            next(follow_source(pipeline, spark, lambda: True))
    assert cut == newest_cut(pipeline.lake)
