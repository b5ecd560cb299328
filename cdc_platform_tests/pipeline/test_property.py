"""The invariant of the whole: any history, read in any way, becomes exactly its log and its tables."""

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.fake_stream import FakeChangeStream, ReadSchedule, raw_rows
from cdc_platform_tests.strategies import spark_cases, streams
from cdc_platform_tests.support.history import History, LogEntry, tables_at
from cdc_platform_tests.support.pipelines import (
    append_raw,
    log_rows,
    make_pipeline,
    merging_by_spark,
    reading_by_spark,
    rows_of,
    run_steps,
)
from cdc_platform_tests.typed_values import sorted_by_key, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = max(3, settings.default.max_examples // 16 if settings.default is not None else 0)
"""An example takes seconds, because each of its cycles goes through Spark."""
MIN_TRANSACTIONS = 8
"""Hypothesis begins with the smallest example, which shows least."""


@pytest.mark.integration
@spark_cases(EXAMPLES)
@given(
    stream=streams(max_transactions=16).filter(
        lambda stream: len(stream[0].transactions) >= MIN_TRANSACTIONS
    ),
    cycles_at_once=st.integers(1, 3),
    repeats=st.booleans(),
)
def test_log_and_tables_equal_the_history_at_every_cut(
    spark: "SparkSession",
    session_lake: LakeSettings,
    stream: tuple[History, ReadSchedule],
    cycles_at_once: int,
    repeats: bool,
) -> None:
    """Partitions split, merge and move, windows fail and repeat, all four capture types mix, by either way.

    By turns this process commits and merges what is little, and Spark does.
    """
    history, schedule = stream
    source = FakeChangeStream(history, schedule.tree)
    pipeline = make_pipeline(session_lake, history.tables, first_micros=schedule.tree.start_micros)
    ways = itertools.cycle((pipeline, merging_by_spark(reading_by_spark(pipeline))))
    batches = raw_rows(history, schedule)
    event(f"{len(batches)} cycles")
    for number, batch in enumerate(batches, 1):
        append_raw(pipeline, batch.cycle, batch.rows, position_micros=0)
        if number % cycles_at_once and number < len(batches):
            continue
        pipeline = next(ways)
        cut = run_steps(pipeline, spark)
        if repeats:
            assert cut == run_steps(pipeline, spark)
        assert batch.watermark_micros == cut.position_micros
        assert source.log(cut.position_micros) == [log_entry(row) for row in log_rows(pipeline)]
    cuts = list_cuts(pipeline.lake)
    assert cuts[-1].position_micros >= history.end_micros
    for cut in cuts:
        assert_tables_equal_history(pipeline, history, cut.position_micros, dict(cut.tables))
    assert_tables_equal_history(pipeline, history, history.end_micros, {})


def assert_tables_equal_history(
    pipeline: Pipeline, history: History, at_micros: int, snapshots: dict[str, int]
) -> None:
    """Compare all tables, at snapshots or as readers see them, with the history at a moment."""
    expected = tables_at(history, at_micros)
    for table in history.tables:
        stored = sorted_by_key(table, rows_of(pipeline, table.name, snapshots.get(table.name)))
        assert typed_rows(table, expected[table.name]) == stored, f"`{table.name}` at {at_micros}"


def log_entry(row: dict[str, Any]) -> LogEntry:
    """Return the essential columns of a row of the change log."""
    return LogEntry(
        table_name=row["table_name"],
        change_kind=ChangeKind(row["change_kind"]),
        commit_micros=from_datetime(row["commit_timestamp"]),
        transaction_id=row["transaction_id"],
        record_id=row["record_id"],
        mod_ordinal=row["mod_ordinal"],
        keys=row["keys"],
        new_values=row["new_values"],
        old_values=row["old_values"],
        is_whole_row=row["is_whole_row"],
    )
