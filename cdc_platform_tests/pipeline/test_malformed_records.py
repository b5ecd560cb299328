"""Records of Spanner that a version could not decode, replayed by one that can."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.log_checks import check_nothing_lost
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.spark.log.faults import SHAPE_FAULT
from cdc_platform.spark.log.order import COMPANY
from cdc_platform_tests.pipeline.bank import SECOND, balances, bank_pipeline, opening
from cdc_platform_tests.sources.spanner.fake_server import json_data_record
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import START, feed, quarantined_rows, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def malformed(text: str, sequence: str) -> RawRow:
    """Return the raw record of a text that could not be decoded, of the transaction of account 7."""
    row = opening(7, 70, START + 1)
    return {
        **dict.fromkeys(row),
        **{name: row[name] for name in ("kind", "partition_token", "record_timestamp")},
        "server_transaction_id": "new shape",
        "record_sequence": f"malformed-{sequence}",
        "record_order": f"malformed-{sequence}",
        "mods": [{"keys": None, "new_values": text, "old_values": "KeyError('mods')"}],
    }


def test_a_record_of_a_new_shape_is_replayed(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Its transaction enters the log as a whole; one that still cannot be decoded comes back."""
    pipeline = bank_pipeline(session_lake)
    mods: list[Any] = [{"keys": {"id": "7"}, "new_values": {"owner": "a", "balance": "70"}, "old_values": {}}]
    record = json_data_record(
        to_rfc3339(START + 1), "new shape", mods=mods, mod_type="INSERT", number_of_records_in_transaction=2
    )["data_change_record"]
    company = opening(8, 80, START + 1)
    company |= {"server_transaction_id": "new shape", "number_of_records_in_transaction": 2}
    company |= {"record_sequence": "00000009", "record_order": record_order("00000009")}
    broken, other = ({**malformed("{", name), "server_transaction_id": "still new"} for name in "bc")
    feed(
        pipeline,
        START + SECOND,
        malformed(json.dumps(record), "a"),
        company,
        broken,
        other,
        opening(1, 100, START + 1),
    )
    run_steps(pipeline, spark)
    assert balances(pipeline) == {1: 100}
    reasons = sorted(row["reason"] for row in quarantined_rows(pipeline))
    assert reasons == [COMPANY, *[f"{SHAPE_FAULT}KeyError('mods')"] * 3]

    replay_records(pipeline, QuarantineFilter())
    feed(pipeline, START + 2 * SECOND, opening(2, 200, START + SECOND + 1))
    run_steps(pipeline, spark)
    assert balances(pipeline) == {1: 100, 2: 200, 7: 70, 8: 80}
    left = [row["transaction_id"] for row in quarantined_rows(pipeline) if row["replayed_at"] is None]
    assert left == ["still new"] * 2
    assert check_nothing_lost(pipeline, spark, EVERYTHING).passed
