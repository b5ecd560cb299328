"""Rows that an overtaken run has replaced."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import CommitConflict, LakeError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import AFTER, head_id
from cdc_platform.model.base.stored_names import CYCLE, QUARANTINE
from cdc_platform.pipeline.ordering.log_commit import restore_replaced
from cdc_platform_tests.support.pipelines import make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.integration
def test_replaced_rows_whose_snapshot_is_gone_are_no_conflict(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Each further try would fail in the same way, so the error is one that lasts."""
    pipeline = make_pipeline(session_lake, ())
    table = pipeline.lake.system_table(QUARANTINE)
    empty = table.schema().as_arrow().empty_table()
    table.append(empty, snapshot_properties={AFTER: "1", CYCLE: "2"})
    replaced_id = head_id(table)
    assert replaced_id is not None
    table.append(empty, snapshot_properties={AFTER: "1", CYCLE: "3"})
    table.maintenance.expire_snapshots().by_id(replaced_id).commit()
    table = pipeline.lake.system_table(QUARANTINE)
    with pytest.raises(LakeError, match=f"Snapshot {replaced_id} of `.*quarantine` is gone") as caught:
        restore_replaced(pipeline, spark, [table], cycle=2)
    assert not isinstance(caught.value, CommitConflict)
