"""Versions of tables that Spark reads."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import head_id
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.versions.lake_frames import read_own, read_table
from cdc_platform_tests.pipeline.bank import bank_pipeline, feed_next
from cdc_platform_tests.support.pipelines import run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_a_version_that_another_run_has_expired_is_a_conflict(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A run that pauses for longer than the lake keeps snapshots goes on with the next cycle."""
    bank = bank_pipeline(session_lake)
    feed_next(bank)
    run_steps(bank, spark)
    log = bank.lake.system_table(LOG)
    feed_next(bank)
    run_steps(bank, spark)
    expired_id = head_id(log)
    assert expired_id is not None
    bank.lake.system_table(LOG).maintenance.expire_snapshots().by_id(expired_id).commit()
    with pytest.raises(CommitConflict), reaching(session_lake):
        read_own(bank, spark, LOG, log).collect()
    with pytest.raises(CommitConflict, match="has expired snapshot 123 of table `accounts`"):
        read_table(bank, spark, "accounts", 123)
