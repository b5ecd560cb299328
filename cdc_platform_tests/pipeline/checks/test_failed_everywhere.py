"""Checks that every row fails: the driver gets their number and a few of them."""

import json
from collections.abc import Iterator
from hashlib import sha512
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.checks.check_result import EVERYTHING, SHOWN
from cdc_platform.pipeline.checks.invariants import checks_of
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.footprints.driver_bytes import DriverBytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROWS: Final = 2_000
MAX_BYTES: Final = 90_000
"""What a check may send, most of it measurements of its tasks; the keys of the rows would take more."""


def snapshot(lsn: int, keys: range) -> Iterator[str]:
    """Yield the rows of a snapshot."""
    source = {"lsn": lsn, "sequence": json.dumps([str(lsn)] * 2), "snapshot": "true"}
    for key in keys:
        name = sha512(str(key).encode()).hexdigest()
        yield line(envelope("r", after={"id": name}, source=source), {"id": name}) + "\n"


def test_few_of_many_rows_are_sent(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """A table of a hundred million rows may differ in each of them."""
    settings = settings_with(input=FilesInput(str(tmp_path)), columns={TABLE: {"id": "text"}})
    pipeline = open_pipeline(PipelineSettings("all_fail", settings, session_lake))
    (tmp_path / "1.jsonl").write_text("".join(snapshot(100, range(ROWS))))
    sync(pipeline, spark)
    (tmp_path / "2.jsonl").write_text("".join(snapshot(800, range(1))))
    pipeline = sync(pipeline, spark)
    (check,) = (check for check in checks_of(pipeline.capabilities) if check.name == "snapshots_agree")
    sent = DriverBytes(spark)
    with sent.count():
        result = check.run(pipeline, spark, EVERYTHING)
    assert result.facts["rows"] == ROWS - 1
    assert result.summary.count('{"id":"') == SHOWN
    assert sent.counted < MAX_BYTES
