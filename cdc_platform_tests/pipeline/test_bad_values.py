"""Values that nothing can hold, in whole cycles: each lies in quarantine, and the rest is published."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.pipeline.core.pipeline import open_pipeline
from cdc_platform.pipeline.core.settings import PipelineSettings
from cdc_platform.sources.datastream.settings.settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.settings import FilesInput
from cdc_platform_tests.fuzzing.known_inputs import corpus
from cdc_platform_tests.sources.datastream.generated_events import story
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.odd_values import HALF, inserted
from cdc_platform_tests.support.pipelines import quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_debezium_goes_on(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Good rows before and behind every bad line are published, and each bad one has a reason."""
    columns = {**COLUMNS[TABLE], "": "text", "ad\u0131": "text", "adi": "text"}
    named = [
        line(envelope("c", after={"id": 5, **more}), {"id": 5})
        for more in ({"": "a"}, {"adi": "a", "ad\u0131": "b"})
    ]
    bad = [*(data.decode() for data in corpus("debezium")), *named]
    good = [inserted(key, source={"lsn": 600 + key}) for key in (101, 102)]
    (tmp_path / "a.jsonl").write_text("\n".join([good[0], *bad, good[1], ""]), encoding="utf-8")
    tables = (TABLE, f"{HALF}.orders", f"public.{HALF}")
    source = settings_with(input=FilesInput(str(tmp_path)), columns=dict.fromkeys(tables, columns))
    pipeline = sync(open_pipeline(PipelineSettings("bad_debezium", source, session_lake)), spark)
    assert {101, 102} <= {row["id"] for row in rows_of(pipeline, TABLE)}
    held = quarantined_rows(pipeline)
    assert len(bad) - 3 <= len(held) <= len(bad)
    assert all(row["reason"] for row in held)
    assert set(failed_checks(pipeline, spark)) <= {"quarantine_empty"}


def test_datastream_goes_on(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """The same of lines of JSON, and of whole files of Avro."""
    good = [json.dumps(event).encode() for event in story("mysql")[:2]]
    lines = [good[0], *corpus("datastream_json"), good[1]]
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(lines))
    for number, data in enumerate(corpus("datastream_avro")):
        (tmp_path / f"{number}.avro").write_bytes(data)
    source = DatastreamSettings(str(tmp_path), most_block_bytes=2**20, most_digits=200, most_depth=40)
    pipeline = sync(open_pipeline(PipelineSettings("bad_datastream", source, session_lake)), spark)
    assert {"1", "2"} <= {str(row["id"]) for row in rows_of(pipeline, "shop.items")}
    held = quarantined_rows(pipeline)
    assert len(held) >= len(corpus("datastream_avro"))
    assert all(row["reason"] for row in held)
    assert set(failed_checks(pipeline, spark)) <= {"quarantine_empty"}
