"""Expiry of snapshots, whatever else happens to the table meanwhile."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.maintenance import expire_snapshots, find_expendable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = 2**62
ROWS = pa.table({"id": [1]})


@pytest.mark.integration
def test_expiry_waits_where_a_snapshot_has_got_a_tag(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A snapshot pinned between the search for old ones and their expiry stays; the others go later."""
    lake = Lake(session_lake, "expiring")
    table = lake.catalog.create_table("expiring.t", ROWS.schema)
    for _ in range(4):
        table.append(ROWS)
    first, second, third = find_expendable(table, FAR, keep_newest=1)
    table.manage_snapshots().create_tag(second, "pinned").commit()

    assert expire_snapshots(spark, "expiring.t", (first, second, third)) == 0
    table.refresh()
    assert find_expendable(table, FAR, keep_newest=1) == (first, third)
    assert expire_snapshots(spark, "expiring.t", (first, third)) > 0
    left = {snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots}
    assert {first, second, third} & left == {second}
