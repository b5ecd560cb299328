"""Golden streams through a whole cycle: log, tables and quarantine are those of the golden files."""

from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform_tests.golden_streams import GoldenStream, golden_streams, log_row, quarantine_row
from cdc_platform_tests.support.pipelines import (
    append_raw,
    log_rows,
    make_pipeline,
    merging_by_spark,
    quarantined_rows,
    reading_by_spark,
    rows_of,
    run_steps,
)
from cdc_platform_tests.typed_values import sorted_by_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AT_ONCE: Final = {"02-patch-null-versus-absent", "04-replace-in-one-transaction", "07-duplicates"}
"""Streams of which one change of a row depends on another: what several cycles at once may get wrong."""
CASES: Final = [
    pytest.param(stream, at_once, id=f"{stream.name}-{'all cycles at once' if at_once else 'cycle by cycle'}")
    for stream in golden_streams()
    for at_once in (stream.name in AT_ONCE,)
]


@pytest.mark.integration
@pytest.mark.parametrize(("stream", "at_once"), CASES)
def test_a_stream_becomes_its_log_and_tables(
    spark: "SparkSession", session_lake: LakeSettings, stream: GoldenStream, at_once: bool
) -> None:
    """The result is the same for any number of cycles before the next step; all at once by Spark."""
    pipeline = make_pipeline(session_lake, stream.schemas, first_micros=stream.start_micros)
    pipeline = merging_by_spark(reading_by_spark(pipeline)) if at_once else pipeline
    last = max(stream.cycles)
    for cycle, rows in stream.cycles.items():
        append_raw(pipeline, cycle, rows, position_micros=0)
        if cycle == last or not at_once:
            cut = run_steps(pipeline, spark)
    assert list(stream.log) == [log_row(row) for row in log_rows(pipeline)]
    quarantined = {tuple(quarantine_row(row).items()) for row in quarantined_rows(pipeline)}
    assert {tuple(row.items()) for row in stream.quarantine} == quarantined
    for table in stream.schemas:
        stored = rows_of(pipeline, table.name, cut.tables[table.name])
        assert stream.tables[table.name] == sorted_by_key(table, stored)
