"""A small batch whose rows are large in the table: their values stay in Spark's tasks."""

import base64
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.completing import distributed_completion
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.reading.read import read_generations
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.written_events import TABLE, envelope, line, settings_with
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.footprints.driver_bytes import DriverBytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROWS: Final = 20
LETTERS: Final = 60_000
COLUMNS: Final = {TABLE: {"id": "bigint", "n": "integer", "big": "text"}}
MAX_BYTES: Final = 400_000
"""Lowered bound; the rows have 1.2 million bytes."""
UPDATE_BYTES: Final = 10_000
"""More than an update without its large value takes in all that the driver gets of it."""
BOUNDS: Final = {1: (LETTERS / 2, 2 * LETTERS), ROWS: (0, MAX_BYTES + ROWS * UPDATE_BYTES)}
"""The least and the most bytes that the driver gets, by the number of rows that a cycle updates."""


def large(number: int) -> str:
    """Return the large value of a row, which no codec makes much smaller."""
    dice = random.Random(number)  # noqa: S311  a test's input, not a secret
    return base64.b64encode(dice.randbytes(LETTERS * 3 // 4)).decode()


def row(number: int, n: int, big: str) -> str:
    """Return an event of a row; a snapshot's if it is the first one."""
    lsn = 1_000 * (n + 1) + number
    source = {"lsn": lsn, "sequence": json.dumps([str(lsn)] * 2), "txId": lsn}
    after = {"id": number, "n": n, "big": big}
    return line(envelope("u" if n else "r", after=after, source=source), {"id": number}) + "\n"


def test_large_stored_values_do_not_reach_the_driver(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark fails a job that brings more than `spark.driver.maxResultSize`: each cycle would fail again.

    Values that fit are still completed by this process, which is quicker.
    """
    monkeypatch.setattr(distributed_completion, "MAX_STORED_BYTES", MAX_BYTES)
    settings = settings_with(input=FilesInput(str(tmp_path)), strategy="enrich", columns=COLUMNS)
    pipeline = open_pipeline(PipelineSettings("large", settings, session_lake))
    (tmp_path / "0.jsonl").write_text("".join(row(key, 0, large(key)) for key in range(ROWS)))
    pipeline = sync(pipeline, spark)
    for n, (updated, (lowest, highest)) in enumerate(BOUNDS.items(), start=1):
        updates = (row(key, n, DEFAULT_PLACEHOLDER) for key in range(updated))
        (tmp_path / f"{n}.jsonl").write_text("".join(updates))
        read_generations(pipeline, spark)
        sent = DriverBytes(spark)
        with sent.count():
            order_changes(pipeline, spark)
        assert lowest <= sent.counted <= highest
        pipeline = sync(pipeline, spark)
        expected = [(key, n if key < updated else 0, large(key)) for key in range(ROWS)]
        assert expected == [(row["id"], row["n"], row["big"]) for row in found_rows(pipeline, TABLE)]
    assert failed_checks(pipeline, spark) == {}
