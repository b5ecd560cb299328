"""Texts of the lake that the steps of a cycle read are damage where they are none of the platform's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import CopyPlan
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.base.stored_names import CYCLE, RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.pipeline.checks.unlogged_checks import check_arrival
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.read_reports import list_unread, repeated_from
from cdc_platform.sources.debezium.files.source import DebeziumSource, states_of
from cdc_platform.sources.debezium.kafka.topic_ranges import plan_ranges
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.spanner.copying.copy_reader import plan_copy_tasks
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.support.pipelines import ACCOUNTS

SPANNER: Final = SpannerSettings("project", "instance", "database", "stream")
REPORTS: Final = "kind = 'file'"


@pytest.mark.parametrize("metadata", ["{", "[]", "{}", '{"is_read": "yes", "version": "1"}', "[" * 100_000])
@pytest.mark.parametrize(
    "read",
    [
        list_unread,
        lambda pipeline: repeated_from(pipeline, REPORTS),
        lambda pipeline: check_arrival(pipeline, cast("Any", None), cast("Any", None)),
    ],
)
def test_a_damaged_report_names_its_file(
    tmp_path: Path, metadata: str, read: Callable[[Pipeline], object]
) -> None:
    """Anyone who reads the reports of a cycle names the file of one that is none."""
    (tmp_path / "events").mkdir()
    source = DebeziumSettings(FilesInput(str(tmp_path / "events")), has_transaction_topic=True)
    settings = PipelineSettings(name="p", source=source, lake=LakeSettings(str(tmp_path / "lake")))
    lake = Lake(settings.lake, "p", delivers_events=True)
    row = {
        "cycle": 1,
        "kind": "file",
        "record_timestamp": to_datetime(1),
        "event": {"origin": "a.jsonl", "metadata": metadata},
    }
    rows = pa.Table.from_pylist([row], RAW_EVENT_RECORDS)
    lake.system_table(RAW).append(rows, snapshot_properties={CYCLE: "1"})
    with pytest.raises(LakeDamaged, match=r"its table `raw_change_records`, the report on a\.jsonl: "):
        read(Pipeline(settings, lake, DebeziumSource(source)))


@pytest.mark.parametrize("state", ["decoder state", "transactions passed"])
@pytest.mark.parametrize(
    "text", ["{", "{}", "", '["a", 1]', '["a", "x", {}, 1]', '["a", 1, {"t": 1}, 2]', "[" * 100_000]
)
def test_a_damaged_state_stops_the_plan(state: str, text: str) -> None:
    """A state that a decoder or a transaction buffer cannot use is reported before anything is read."""
    with pytest.raises(LakeDamaged, match=rf"its table `files`, row `{state}`"):
        states_of({state: text})


@pytest.mark.parametrize("text", ["", "a", '["a", 1]', '["a", "b", 1]', '["a", 1, "b"]'])
def test_damaged_progress_of_a_topic_names_the_partition(text: str) -> None:
    """Progress without offsets is not a beginning."""
    with pytest.raises(LakeDamaged, match=r"its table `files`, row `t/0`"):
        plan_ranges([], {"t/0": text}, KafkaInput("localhost:9092", "t"), lambda _: {}, 0)


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "t"}', '{"name": "t", "columns": [{"name": "a"}]}'])
def test_damaged_plans_of_copies_name_their_table(text: str) -> None:
    """Columns and chunks that no planner has written stop the copy before Spark's tasks begin."""
    with pytest.raises(LakeDamaged, match=r"its table `copies`, plan 1 of `accounts`"):
        _ = CopyPlan("accounts", 1, 1, 2, text, ()).schema
    with pytest.raises(LakeDamaged, match=r"its table `copies`, a chunk of `accounts`"):
        plan_copy_tasks("{}", ACCOUNTS, 1, [text])
