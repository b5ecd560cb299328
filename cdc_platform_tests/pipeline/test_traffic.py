"""Simulated traffic: partitions that split, merge and move, all faults, a reconciliation at every cut."""

from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.simulator.wire.simulator_settings import PartitionMode
from cdc_platform_tests.support.workloads.traffic import Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CYCLES: Final = 3
OPTIONS: Final[dict[str, Any]] = {
    "capture": ValueCaptureType.NEW_VALUES,
    "partition_mode": PartitionMode.MUTABLE_KEY_RANGE,
    "schema_change_every_s": 7.0,
}


@pytest.mark.integration
def test_every_cut_of_simulated_traffic_is_right(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Tables and log equal the true history at every cut, and no money is made or lost.

    Keys move every second between partitions that continue; a column comes back to the stream in another
    type, and a table is added and leaves it. `test_day.py` has the other dialect and the other mode.
    """
    traffic = Traffic(2, 60, session_lake, rate=50, churn_s=1, faults_share=0.06, **OPTIONS)
    with traffic.open() as (simulator, pipeline):
        for _ in range(CYCLES):
            traffic.cycle(simulator, pipeline, spark, 12)
        traffic.catch_up(simulator, pipeline, spark)
        lineage = load_lineage(pipeline.lake)

    assert traffic.cuts >= CYCLES - 1
    assert traffic.transactions > 0
    assert lineage is not None
    # Those that end within the cycles, besides the query without a token.
    assert sum(partition.is_finished for partition in lineage.partitions.values()) > 1
    assert sum(simulator.database.faults.incidents.values()) > 0
