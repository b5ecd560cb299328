"""Values that nothing can hold, in whole cycles: each lies in quarantine, and the rest is published."""

import json
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.spark.log.faults import LONG_FAULT
from cdc_platform_tests.fuzzing.known_inputs import corpus
from cdc_platform_tests.sources.datastream.generated_events import scenario
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.hostile.debezium import inserted
from cdc_platform_tests.support.hostile.values import HALF
from cdc_platform_tests.support.pipelines import quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


LONG: Final = "n" * 60_000
LONG_NAMES: Final = [
    "The name of a column has 60000 characters, but the limit is 255",
    "The name of a table has 6000{} characters, but the limit is 1000",
]


def begins(reasons: Iterable[str], text: str) -> int:
    """Return how many reasons begin with a text."""
    return sum(reason.startswith(text) for reason in reasons)


def test_debezium_continues(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """Good rows before and behind every bad line are published, and each bad one has a reason.

    Too long names of columns and tables, and too long texts, are quarantined for their length.
    """
    columns = {**COLUMNS[TABLE], "": "text", "ad\u0131": "text", "adi": "text", LONG: "text"}
    named = [
        line(envelope("c", after={"id": 5, **more}), {"id": 5})
        for more in ({"": "a"}, {"adi": "a", "ad\u0131": "b"}, {LONG: "a"})
    ]
    long = [inserted(6, source={"table": LONG}), inserted(7, text="x" * 20_000_001, source={"lsn": 607})]
    bad = [*(data.decode() for data in corpus("debezium")), *named, *long]
    good = [inserted(key, source={"lsn": 600 + key}) for key in (101, 102)]
    (tmp_path / "a.jsonl").write_text("\n".join([good[0], *bad, good[1], ""]), encoding="utf-8")
    tables = (TABLE, f"{HALF}.orders", f"public.{HALF}")
    source = settings_with(input=FilesInput(str(tmp_path)), columns=dict.fromkeys(tables, columns))
    pipeline = sync(open_pipeline(PipelineSettings("limits_debezium", source, session_lake)), spark)
    rows = {row["id"]: row["big"] for row in rows_of(pipeline, TABLE)}
    assert {101: "a", 102: "a"}.items() <= rows.items()
    assert not {6, 7} & rows.keys()
    quarantined = quarantined_rows(pipeline)
    assert len(bad) - 3 <= len(quarantined) <= len(bad)
    reasons = [row["reason"] for row in quarantined]
    assert all(reasons)
    assert [begins(reasons, text.format(7)) for text in LONG_NAMES] == [1, 1]
    assert begins(reasons, LONG_FAULT) == 1
    assert set(failed_checks(pipeline, spark)) <= {"quarantine_empty"}


def test_datastream_continues(spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path) -> None:
    """The same of lines of JSON, and of whole files of Avro.

    An event whose column or table has too long a name is quarantined; other rows have their values.
    """
    events = deepcopy(scenario("mysql")[:5])
    events[1]["payload"][LONG] = 1
    events[3]["source_metadata"]["table"] = LONG
    good = [json.dumps(event).encode() for event in events]
    lines = [*good[:2], *corpus("datastream_json"), *good[2:]]
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(lines))
    for number, data in enumerate(corpus("datastream_avro")):
        (tmp_path / f"{number}.avro").write_bytes(data)
    source = DatastreamSettings(str(tmp_path), max_block_bytes=2**20, max_digits=200, max_depth=40)
    # Spark, which does not read such names, merges whatever there is.
    settings = PipelineSettings("limits_datastream", source, session_lake, local_merge_bytes=0)
    pipeline = sync(open_pipeline(settings), spark)
    expected = {str(event["payload"]["id"]): event["payload"]["v"] for event in (events[0], events[2])}
    values = {str(row["id"]): row["v"] for row in rows_of(pipeline, "shop.items")}
    assert expected.items() <= values.items()
    quarantined = quarantined_rows(pipeline)
    assert len(quarantined) >= len(corpus("datastream_avro")) + len(LONG_NAMES)
    reasons = [row["reason"] for row in quarantined]
    assert all(reasons)
    assert [begins(reasons, text.format(5)) for text in LONG_NAMES] == [1, 1]
    assert set(failed_checks(pipeline, spark)) <= {"quarantine_empty"}
