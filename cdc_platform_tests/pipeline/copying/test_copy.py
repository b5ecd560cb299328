"""Initial copies: rows as of a moment, from which the stream takes over exactly."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from pyiceberg.table import Table

from cdc_platform.errors import AccessDenied, LakeError, SourceNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import (
    COPY_BRANCH,
    BatchTiming,
    CopyPlan,
    CopyProgress,
    load_copy_progress,
    load_plans,
)
from cdc_platform.lake.state.cuts import Cut, list_cuts
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.copying import chunks
from cdc_platform.pipeline.copying.copy import NO_COPY, CopyOutcome, copy_tables
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.status import CopyStatus, read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform_tests.fake_stream import ReadSchedule, raw_rows
from cdc_platform_tests.pipeline.bank import NOW, balances, bank_of, closing, opening, transfer
from cdc_platform_tests.strategies import spark_cases, streams
from cdc_platform_tests.support.history import History, RawRow, tables_at
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.kept_progress import KeptProgress
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    TRANSFERS,
    append_raw,
    data_change,
    feed,
    found_table,
    make_pipeline,
    rows_of,
    source_of,
)
from cdc_platform_tests.typed_values import sorted_by_key, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


MIN_TRANSACTIONS = 4
"""Hypothesis begins with the smallest example, which shows least."""


def step(pipeline: Pipeline, spark: "SparkSession") -> tuple[CopyOutcome, Cut | None]:
    """Do everything of a cycle but the reading."""
    copied = copy_tables(pipeline, spark)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    return copied, publish_cut(pipeline)


def copied_ids(pipeline: Pipeline) -> list[int]:
    """Return the keys of the rows on the branch of the copy, repeated ones as often as they are there."""
    table = found_table(pipeline, "accounts")
    snapshot_id = table.metadata.refs[COPY_BRANCH].snapshot_id
    return sorted(row["id"] for row in rows_of(pipeline, "accounts", snapshot_id))


@spark_cases(1)
@given(
    stream=streams(5).filter(lambda stream: len(stream[0].transactions) >= MIN_TRANSACTIONS), data=st.data()
)
def test_every_cut_equals_the_history_wherever_the_stream_takes_over(
    spark: "SparkSession",
    session_lake: LakeSettings,
    stream: tuple[History, ReadSchedule],
    data: st.DataObject,
) -> None:
    """Copies begin at any cycle and moment, take several cycles, and changes before them count once."""
    history, schedule = stream
    batches = raw_rows(history, schedule)
    pipeline = make_pipeline(
        session_lake, history.tables, first_micros=schedule.tree.start_micros, copy_chunk_rows=2
    )
    begins_at = data.draw(st.integers(0, len(batches) - 1))
    source = source_of(pipeline)
    earliest = batches[begins_at - 1].watermark_micros if begins_at else schedule.tree.start_micros - 1
    source.now_micros = 1 + data.draw(st.integers(earliest, batches[-1].watermark_micros))
    source.rows_at = rows_of_history(history)
    event(f"copy at cycle {begins_at} of {len(batches)}")
    for number, batch in enumerate(batches):
        append_raw(pipeline, batch.cycle, batch.rows, position_micros=0)
        # Every third cycle is merged: a step over several is the same, and half as long.
        if number >= begins_at and (number - begins_at) % 3 == 0:
            step(pipeline, spark)
    while step(pipeline, spark)[0].is_pending:
        continue
    cuts = list_cuts(pipeline.lake)
    assert {table.name for table in history.tables} == set(cuts[-1].tables)
    for cut in cuts:
        for name, snapshot_id in cut.tables.items():
            table = history.table(name)
            expected = typed_rows(table, tables_at(history, cut.position_micros)[name])
            assert expected == sorted_by_key(table, rows_of(pipeline, name, snapshot_id))
            assert load_plans(pipeline.lake)[name].position_micros <= cut.position_micros


def rows_of_history(history: History) -> Callable[[str, int], Iterator[pa.RecordBatch]]:
    """Return the reads of a source that has this history."""

    def rows_at(name: str, micros: int) -> Iterator[pa.RecordBatch]:
        table = history.table(name)
        rows = typed_rows(table, tables_at(history, micros)[name])
        yield pa.RecordBatch.from_pylist(rows, table_arrow_schema(table))

    return rows_at


def test_the_stream_takes_over_right_after_the_copy(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A change at the copy's moment is in the copy; the next one comes from the log, and each counts once."""
    pipeline = bank_of(session_lake, 3)
    position = NOW - 1
    before = [opening(3, 100, position), *transfer({1: 100, 2: 100}, position - 1)]
    feed(pipeline, position + 5, *before, *transfer({1: 90, 2: 110}, position + 1), closing(3, position + 2))
    step(pipeline, spark)

    assert balances(pipeline) == {1: 90, 2: 110}
    assert [merge.fell_back for merge in merge_tables(pipeline, spark, pipeline.tables)] == [False]
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
    rebuilt = rebuild_table(pipeline, spark, "accounts")
    assert (rebuilt.updated, rebuilt.deleted, rebuilt.fell_back) == (2, 1, False)
    assert balances(pipeline) == {1: 90, 2: 110}
    maintain_lake(pipeline, spark, thorough=True)
    assert copied_ids(pipeline) == [1, 2, 3]
    assert found_table(pipeline, "accounts").schema().identifier_field_names() == {"id"}


def test_a_table_waits_for_its_copy_and_for_the_log(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """No cut names a table whose rows are missing, nor one whose copy is later than the cut.

    The progress of a step continues where the step before has stopped.
    """
    kept = KeptProgress()
    pipeline = replace(bank_of(session_lake, 9), progress=kept)
    feed(pipeline, NOW - 2)
    first, none = step(pipeline, spark)
    assert (first.is_pending, first.rows, none) == (True, 8, None)
    assert {"accounts": CopyStatus(1, NOW - 1, 2, 1, 8)} == read_status(pipeline).copies
    second, still_none = step(pipeline, spark)
    assert (second.is_pending, second.rows, still_none) == (False, 1, None)
    feed(pipeline, NOW - 1)
    cut = step(pipeline, spark)[1]

    assert cut is not None
    assert (cut.position_micros, len(balances(pipeline))) == (NOW - 1, 9)
    assert read_status(pipeline).copies == {}
    copied = [counted[2:] for counted in kept.counted() if counted[0] == "initial copy"]
    assert copied[:2] == [(1, 2), (2, 2)]
    assert [kept_step.note for kept_step in kept.over if kept_step.name == "initial copy"][:2] == [
        "8 rows",
        "9 rows",
    ]
    assert ("merge", "tables", 1, 1) in kept.counted()
    assert copy_tables(pipeline, spark) == CopyOutcome()


def test_a_table_is_added_without_stopping_the_others(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """While it is copied, even if the copy fails, cuts of the others continue; then it joins them."""
    pipeline = bank_of(session_lake, 10, TRANSFERS)
    source = source_of(pipeline)
    source.schema_at = lambda micros: SchemaRead(
        micros, source.schemas, {"accounts": (), "transfers": ()}, {}
    )
    feed(pipeline, NOW, *transfer({1: 99, 2: 101}, NOW - 5))
    assert {"transfers"} == set(_cut(step(pipeline, spark)).tables)

    source.schemas, source.now_micros = (ACCOUNTS, TRANSFERS), NOW + 10
    feed(pipeline, NOW + 10, *transfer({1: 98, 2: 102}, NOW + 5))
    # The first cycle that has changes reports the new table; the next one begins to copy it.
    assert {"transfers"} == set(_cut(step(pipeline, spark)).tables)
    source.plans.denied = {"accounts"}
    failed, cut = step(pipeline, spark)
    assert (failed.unplanned, isinstance(failed.failure, AccessDenied)) == (("accounts",), True)
    assert ({"transfers"}, NOW + 10) == (set(_cut((failed, cut)).tables), _cut((failed, cut)).position_micros)

    source.plans.denied, source.now_micros = set(), NOW + 20
    feed(pipeline, NOW + 20, *transfer({1: 97, 2: 103}, NOW + 20))
    assert {"transfers"} == set(_cut(step(pipeline, spark)).tables)
    assert {"accounts", "transfers"} == set(_cut(step(pipeline, spark)).tables)
    assert {key: balance for key, balance in balances(pipeline).items() if key < 3} == {1: 97, 2: 103}
    assert len(balances(pipeline)) == 10
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def _cut(stepped: tuple[CopyOutcome, Cut | None]) -> Cut:
    assert stepped[1] is not None
    return stepped[1]


def test_an_expired_copy_starts_over(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """When the source no longer keeps the copy's version, all is copied again, as it is at a later moment."""
    pipeline = bank_of(session_lake, 9)
    source = source_of(pipeline)
    source.plans.expiring = {"accounts"}
    feed(pipeline, NOW + 50)
    copy_tables(pipeline, spark)
    source.now_micros = NOW + 20
    outcome = step(pipeline, spark)[0]
    assert "starts over after 1 of 2 chunks" in outcome.notes[0]
    assert (outcome.copies[0].plan.number, outcome.copies[0].plan.position_micros) == (2, NOW + 19)
    while step(pipeline, spark)[0].is_pending:
        continue

    assert list(range(1, 10)) == copied_ids(pipeline)
    assert len(balances(pipeline)) == 9


def test_a_table_that_is_dropped_in_the_middle_of_its_copy(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Its copy ends and is removed; recreated, it has the rows that it has got since; others went on."""
    pipeline = bank_of(session_lake, 600, ACCOUNTS, TRANSFERS)
    source = source_of(pipeline)
    source.schema_at = lambda micros: SchemaRead(micros, source.schemas, {}, {})
    feed(pipeline, NOW, _booked(ModType.INSERT, NOW))
    assert step(pipeline, spark)[0].is_pending

    source.schemas, source.rows_at = (TRANSFERS,), _gone
    feed(pipeline, NOW + 10, _booked(ModType.DELETE, NOW + 10))
    assert {"transfers"} == set(_cut(step(pipeline, spark)).tables)
    files = file_names(found_table(pipeline, "accounts"))
    assert any(file.endswith(".parquet") for file in files)
    (note,) = step(pipeline, spark)[0].notes
    assert note == "The source dropped `accounts` before its copy was complete: the copied rows are removed."
    assert step(pipeline, spark)[0] == NO_COPY
    assert read_status(pipeline).copies == {}
    assert [file for file in files if file.endswith(".parquet") and Path(file).exists()] == []

    source.schemas = (ACCOUNTS, TRANSFERS)
    feed(pipeline, NOW + 20, opening(1, 7, NOW + 20))
    assert {"accounts", "transfers"} == set(_cut(step(pipeline, spark)).tables)
    assert balances(pipeline) == {1: 7}
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def file_names(table: Table) -> list[str]:
    """Return the files of a table's folder."""
    folder = Path(table.location().removeprefix("file:"))
    return [str(file) for file in folder.rglob("*") if file.is_file()]


def _booked(mod_type: ModType, micros: int) -> RawRow:
    mod = {"tid": "a"}, {"amount": 1} if mod_type is ModType.INSERT else {}
    return data_change("transfers", mod_type, mod, at_micros=micros, transaction=str(micros))


def _gone(table: str, _micros: int) -> Iterator[pa.RecordBatch]:
    raise SourceNotFound(f"there is no table {table}")


def test_two_runs_copy_every_chunk_once(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk_batch that another run has come before does not count, and neither has copied a row twice."""
    pipeline = bank_of(session_lake, 20)
    feed(pipeline, NOW)
    copy_tables(pipeline, spark)
    interrupt_once(monkeypatch, chunks, "_columns_of_table", lambda: copy_tables(pipeline, spark))
    copy_tables(pipeline, spark)
    progress = load_copy_progress(found_table(pipeline, "accounts"), load_plans(pipeline.lake)["accounts"])
    assert (progress.is_complete, progress.is_mixed) == (True, False)
    step(pipeline, spark)

    assert list(range(1, 21)) == copied_ids(pipeline) == sorted(balances(pipeline))


def test_a_kill_between_chunk_batches_loses_and_repeats_nothing(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends right before or right after a commit of the copy leaves nothing half done."""
    pipeline = bank_of(session_lake, 20)
    feed(pipeline, NOW)
    for name in ("align_branch", "_columns_of_table", "load_copy_progress"):
        with monkeypatch.context() as patch:
            patch.setattr(chunks, name, _die)
            with pytest.raises(KeyboardInterrupt):
                copy_tables(pipeline, spark)
    while step(pipeline, spark)[0].is_pending:
        continue

    assert list(range(1, 21)) == copied_ids(pipeline) == sorted(balances(pipeline))


def test_lives_that_are_too_short_for_a_large_batch_make_progress(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies of more than two chunks at a time copies some in each of its lives."""
    pipeline = bank_of(session_lake, 20, chunk_rows=2)
    feed(pipeline, NOW)
    left: list[int] = []
    while not left or left[-1]:
        life = replace(pipeline, opened_micros=clock_micros(), settings=replace(pipeline.settings, copy_s=60))
        with monkeypatch.context() as patch:
            patch.setattr(source_of(life), "read_copy", dying_beyond(2, source_of(life).read_copy))
            with suppress(KeyboardInterrupt):
                copy_tables(life, spark)
        plan = load_plans(pipeline.lake)["accounts"]
        left.append(len(load_copy_progress(pipeline.lake.table("accounts"), plan).missing))
        assert len(left) < 2 or left[-1] < left[-2]
    step(pipeline, spark)
    assert list(range(1, 21)) == copied_ids(pipeline) == sorted(balances(pipeline))


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], 1),
        ([(8, -5, 1.0)], 1),  # of an earlier process
        ([(1, 0, 30.0)], 2),  # nobody knows yet whether two take longer
        ([(1, 0, 50.0)], 1),
        ([(4, 0, 50.0), (2, 0, 30.0)], 2),
        ([(4, 0, 31.0), (2, 0, 30.0)], 8),  # copied in parallel
        ([(4, 0, 30.0), (2, 0, 16.0)], 4),
        ([(1, 0, 30.0), (2, 0, 60.0)], 1),  # it has just shrunk
        ([(4, 0, 5.0), (2, 0, 2.0)], 8),
        ([(1, 0, 3.0)], 3),  # as many as take ten seconds one after another
        ([(2, 0, 0.001)], 20),  # a short batch says little about the next one
    ],
)
def test_batches_grow_from_one_chunk_while_they_are_short(
    batches: list[tuple[int, int, float]], expected: int
) -> None:
    """The speed of an earlier process does not count, and more chunks may take no longer than fewer."""
    plan = CopyPlan("accounts", 1, 0, 0, "{}", ("chunk",) * 99)
    progress = CopyProgress(
        plan, frozenset(), 0, None, False, tuple(BatchTiming(*batch) for batch in batches)
    )
    assert expected == chunks.batch_chunks(progress, opened_micros=0)


def _die(*_arguments: object) -> Any:
    raise KeyboardInterrupt


def dying_beyond(chunks: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the read of a copy, or the end of the process where it reads more chunks."""

    def read_copy(spark: Any, schema: TableSchema, at_micros: int, names: Sequence[str]) -> Any:
        if len(names) > chunks:
            raise KeyboardInterrupt
        return original(spark, schema, at_micros, names)

    return read_copy


def test_a_copy_that_is_gone_is_reported(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Without the branch of the copy neither the check nor a rebuild pretends that the log were enough."""
    pipeline = bank_of(session_lake, 2)
    feed(pipeline, NOW)
    step(pipeline, spark)
    spark.sql(f"ALTER TABLE {pipeline.lake.spark_table('accounts')} DROP BRANCH {COPY_BRANCH}")

    for action in (
        lambda: check_tables_equal_log(pipeline, spark, EVERYTHING),
        lambda: rebuild_table(pipeline, spark, "accounts"),
    ):
        with pytest.raises(LakeError, match="1 of 1 chunks are missing on its branch `copy`"):
            action()
