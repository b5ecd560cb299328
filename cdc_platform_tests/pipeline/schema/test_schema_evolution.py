"""Tables follow the source's schema, at every kind of change and after every crash."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from pyiceberg.table.update.snapshot import ExpireSnapshots

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import POSITION, STATS, read_mark
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.model.base.stored_names import CYCLE, LOG, SCHEMA
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.source_checks import check_schema, check_source
from cdc_platform.pipeline.checks.table_checks import check_tables_equal_log
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.schema import schema_evolution, table_ddl
from cdc_platform.pipeline.schema.schema_evolution import find_exclusions
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource, lives
from cdc_platform_tests.strategies import spark_cases
from cdc_platform_tests.support.changing.evolving_pipelines import (
    follow,
    live_rows,
    read_until,
    retyped_source,
)
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline as make_events_pipeline
from cdc_platform_tests.support.pipelines import (
    START,
    found_table,
    log_rows,
    make_pipeline,
    rows_of,
    run_steps,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@spark_cases(2)
@given(life=lives().filter(lambda life: len(life[1]) > 1))
def test_whatever_changes_the_table_equals_the_source(
    spark: "SparkSession", session_lake: LakeSettings, life: tuple[EvolvingSource, list[int]]
) -> None:
    """Columns come, go and change their type between any two changes; every cut has the source's rows."""
    source, ends = life
    pipeline = follow(session_lake, source)
    for end in ends:
        read_until(pipeline, end, source)
        cut = run_steps(pipeline, spark)
        assert cut.position_micros == end
        assert source.typed_rows_at(end) == live_rows(pipeline, source, end)
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
    for cut in list_cuts(pipeline.lake):
        # Older cuts have the columns that they were made with.
        names = set(
            found_table(pipeline, "notes").scan(snapshot_id=cut.tables["notes"]).to_arrow().column_names
        )
        assert {"id", *source.state_at(cut.position_micros)[0]} - source.left <= names


def test_a_column_that_changes_its_type_twice_between_cycles_keeps_its_values(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Values of unchanged rows are converted like at the source, through both types at once."""
    source = EvolvingSource()
    for key in ("1", "2"):
        source.write(key, int(key), ValueCaptureType.NEW_ROW, ("a",))
    source.end_step()
    for _ in range(2):
        source.alter("retype", "a", "")
        source.end_step()
        source.write("2", 9, ValueCaptureType.NEW_ROW, ("a",))
        source.end_step()
    pipeline = follow(session_lake, source)
    for step in (0, 4):
        read_until(pipeline, START + step * STEP, source)
        run_steps(pipeline, spark)
    assert len(pipeline.schema_history.tables["notes"].versions) == 4
    assert source.typed_rows_at(START + 4 * STEP) == live_rows(pipeline, source, START + 4 * STEP)


def test_two_runs_meet_one_schema_change(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Both find it, one writes it; a rebuild from the log and from an older cut converts as the cycle did."""
    source = retyped_source()
    pipeline, rival = follow(session_lake, source), None
    read_until(pipeline, START + STEP, source)
    run_steps(pipeline, spark)
    rival = make_pipeline(session_lake, (), name=pipeline.name)
    source_of(rival).schema_at = source_of(pipeline).schema_at
    assert rival.schema_history.cycle == pipeline.schema_history.cycle
    read_until(pipeline, START + 3 * STEP, source)
    for run in (pipeline, rival):
        order_changes(run, spark)
        assert [table.name for table in run.tables] == ["notes"]
    events = pipeline.lake.system_table(SCHEMA).scan().to_arrow()
    assert events.num_rows == len(
        set(zip(*(events[n].to_pylist() for n in ("cycle", "number")), strict=True))
    )
    run_steps(rival, spark)
    table_ddl.ensure_table(pipeline, spark, pipeline.table("notes"))
    first = list_cuts(pipeline.lake)[0]
    for at_cut in (None, first.cut):
        rebuild_table(pipeline, spark, "notes", at_cut)
        assert source.typed_rows_at(START + 3 * STEP) == live_rows(pipeline, source, START + 3 * STEP)
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def test_columns_recreated_as_they_were_have_no_older_values(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Dropped and added again with the same type, across cycles or within one: NULL, as in the source."""
    source = EvolvingSource(columns=dict.fromkeys("abcd", "STRING"))
    pipeline = follow(session_lake, source)
    whole, patch = ValueCaptureType.NEW_ROW, ValueCaptureType.NEW_VALUES

    def step(*actions: Callable[[], None]) -> None:
        for action in actions:
            action()
        source.end_step()

    def drop(name: str) -> Callable[[], None]:
        return lambda: source.alter("drop", name, "")

    def add(name: str) -> Callable[[], None]:
        return lambda: source.alter("add", name, "STRING")

    def write(key: str, number: int, capture: ValueCaptureType, *named: str) -> Callable[[], None]:
        return lambda: source.write(key, number, capture, named)

    step(*(write(key, int(key), whole) for key in "123"))
    step(drop("a"), write("3", 4, patch, "d"))
    for end in (0, 1):
        read_until(pipeline, START + end * STEP, source)
        run_steps(pipeline, spark)
    # In the next cycle `a` comes back, `b` changes its place, and a row shows that `c` was dropped.
    step(add("a"), drop("b"), write("1", 6, patch, "d"))
    step(add("b"), drop("c"), write("2", 8, whole, "d"))
    step(add("c"), write("1", 9, patch, "a", "c"))
    end = START + 4 * STEP
    read_until(pipeline, end, source)
    run_steps(pipeline, spark)

    assert source.typed_rows_at(end) == live_rows(pipeline, source, end)
    assert [row["b"] for row in live_rows(pipeline, source, end)] == [None, None, None]
    stored = sorted(rows_of(pipeline, "notes"), key=lambda row: int(row["id"]))
    assert [row["b__string"] for row in stored] == ["v1", "v2", "v3"]
    rebuild_table(pipeline, spark, "notes")
    assert source.typed_rows_at(end) == live_rows(pipeline, source, end)
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def test_tables_come_and_go_without_a_restart(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A new table is in the next cut; a dropped one stays there; recreated, it has the new rows only."""
    notes, tags = EvolvingSource("notes"), EvolvingSource("tags", columns={})
    capture = ValueCaptureType.NEW_ROW
    pipeline = follow(session_lake, notes, tags)
    steps: list[tuple[dict[str, str], list[str]]] = [
        ({}, []),
        ({"a": "STRING"}, ["1", "2"]),
        ({}, []),
        ({"b": "INT64"}, ["2"]),
    ]
    for number, (columns, keys) in enumerate(steps):
        tags.columns, tags.rows = dict(columns), {}
        for key in keys:
            tags.write(key, number + 1, capture, ("a",))
        notes.write("1", number + 1, capture, ("a",))
        for source in (notes, tags):
            source.end_step()
        read_until(pipeline, START + number * STEP, notes, tags)
        cut = run_steps(pipeline, spark)
        assert ("tags" in cut.tables) == (number > 0)
        if number in {1, 2}:
            assert [str(row["id"]) for row in rows_of(pipeline, "tags")] == ["1", "2"]
            assert "`tags` was dropped" in " ".join(read_status(pipeline).findings) or number == 1
    assert tags.typed_rows_at(START + 3 * STEP) == live_rows(pipeline, tags, START + 3 * STEP)
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
    result = check_schema(pipeline, spark, EVERYTHING)
    assert not result.passed
    assert (result.facts["table_added"], result.facts["table_dropped"]) == (2, 1)


def test_a_column_that_no_lake_can_have_stops_nothing(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """It is left out and named, and its table continues like the others; the log has its values."""
    notes, tags = EvolvingSource(), EvolvingSource("tags", {"__ordinal": "STRING"})
    pipeline = follow(session_lake, notes, tags)
    for number in (1, 2):
        notes.write("1", number, ValueCaptureType.NEW_ROW, tuple(notes.columns))
        tags.write(str(number), number, ValueCaptureType.NEW_ROW, ("__ordinal",))
        notes.end_step()
        tags.end_step()
        notes.alter("add", "_deleted", "STRING")
    for end in (START, START + STEP):
        read_until(pipeline, end, notes, tags)
        run_steps(pipeline, spark)
    assert rows_of(pipeline, "notes") == [{"id": 1, "a": "v2"}]
    assert rows_of(pipeline, "tags") == [{"id": 1}, {"id": 2}]
    assert "_deleted" in log_rows(pipeline)[-2]["new_values"] + log_rows(pipeline)[-1]["new_values"]
    findings = " ".join(read_status(pipeline).findings)
    assert "`notes`: columns with names that are reserved in the lake" in findings
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def test_what_the_stream_leaves_out_is_reported_and_expected(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """With deletes left out a key may be inserted twice: it stays one row, and differences are explained."""
    source = EvolvingSource()
    pipeline = follow(session_lake, source)
    for number in (1, 2):
        source.write("1", number, ValueCaptureType.NEW_ROW, ("a",))
        source.rows.pop("1") if number == 1 else None  # its deletion is not recorded
        source.write("3", number, ValueCaptureType.NEW_ROW, ("a",)) if number == 1 else None
        source.rows.pop("3", None)
        source.end_step()
    filtering = {"exclude_delete": "true"}
    source_of(pipeline).schema_at = lambda micros: SchemaRead(
        micros, source.read_schema(micros).tables, {}, filtering
    )
    source_of(pipeline).now_micros = START + STEP
    assert "exclude_delete = true" in " ".join(find_exclusions(pipeline))
    for end in (START, START + STEP):
        read_until(pipeline, end, source)
        run_steps(pipeline, spark)
    assert [(row["id"], row["a"]) for row in rows_of(pipeline, "notes")] == [(1, "v2"), (3, "v1")]
    source_of(pipeline).rows_at = lambda _table, _micros: iter(
        found_table(pipeline, "notes").scan(row_filter="id = 1").to_arrow().to_batches()
    )
    result = check_source(pipeline, spark, EVERYTHING)
    assert result.passed
    assert "differs as expected, since the change stream has exclude_delete = true" in result.summary
    assert "1 too many" in result.summary


@pytest.mark.parametrize("cause", ["a suspended stream", "exclude_delete"])
def test_what_is_left_out_while_nothing_comes_is_remembered(
    spark: "SparkSession", session_lake: LakeSettings, cause: str
) -> None:
    """A key whose deletion was left out in a time without records is inserted again, and stays one row."""
    source = EvolvingSource()
    pipeline = follow(session_lake, source)
    for number in (1, 2, 3):
        if number != 2:
            source.write("1", number, ValueCaptureType.NEW_ROW, ("a",))
        source.rows.pop("1") if number == 2 else None
        source.end_step()
    is_suspended = cause == "a suspended stream"

    def read_schema(micros: int) -> SchemaRead:
        schema_read = source.read_schema(micros)
        if micros != START + STEP:
            return schema_read
        gone = replace(schema_read, tables=(), unwatched={"notes": ("a", "id")})
        return gone if is_suspended else replace(schema_read, options={"exclude_delete": "true"})

    source_of(pipeline).schema_at = read_schema
    for end in (START, START + STEP, START + 2 * STEP):
        read_until(pipeline, end, source)
        run_steps(pipeline, spark)
    assert rows_of(pipeline, "notes") == [{"id": 1, "a": "v3"}]
    finding = "`notes` was not watched for a while" if is_suspended else "has had exclude_delete = true"
    assert finding in " ".join(read_status(pipeline).findings)
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed


def test_what_another_process_has_stored_outlasts_the_log(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A process that pauses for long finds no trace in the log of a column that another one has added."""
    folder = StreamFolder(tmp_path)
    folder.write([MadeEvent("a", "users", "INSERT", 1, {"id": 1, "name": "a"})])
    paused = sync(make_events_pipeline(session_lake, tmp_path), spark)
    folder.write([MadeEvent("b", "users", "INSERT", 2, {"id": 2, "name": "b", "age": 5})])
    sync(paused, spark)
    log = paused.lake.system_table(LOG)
    mark, nothing = read_mark(log), log.schema().as_arrow().empty_table()
    assert mark.position_micros is not None
    idle = {CYCLE: str(mark.cycle + 1), POSITION: str(mark.position_micros + 1), STATS: "{}"}
    log.append(nothing, snapshot_properties=idle)
    with log.transaction() as transaction:
        older = [snapshot.snapshot_id for snapshot in log.metadata.snapshots[:-1]]
        ExpireSnapshots(transaction).by_ids(older).commit()
    schema_evolution.evolve_tables(paused)
    assert "age" in {column.name for column in paused.schema_history.tables["users"].schema.columns}
