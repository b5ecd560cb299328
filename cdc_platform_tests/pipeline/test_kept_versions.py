"""Histories and deleted rows that stay, where tables begin with a copy, change columns, or come again."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given

from cdc_platform.errors import RowNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories, check_tables_equal_log
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.on_demand.explanation import explain_row
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.bank import NOW, bank_of, closing, opening, transfer
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource, lives
from cdc_platform_tests.strategies import spark_cases
from cdc_platform_tests.support.changing.evolving_pipelines import read_until, retyped_source, schema_read_at
from cdc_platform_tests.support.pipelines import START, feed, make_pipeline, rows_of, run_steps, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KEEPS_ALL = TableOptions(history=True, soft_delete=True)


def with_options(pipeline: Pipeline, **options: TableOptions) -> Pipeline:
    """Return the pipeline with other options of its tables."""
    return replace(pipeline, settings=replace(pipeline.settings, table_options=options))


def keeping(lake: LakeSettings, *sources: EvolvingSource) -> Pipeline:
    """Return a pipeline that keeps all versions and all deleted rows of these tables."""
    pipeline = make_pipeline(lake, (), options={source.name: KEEPS_ALL for source in sources})
    source_of(pipeline).schema_at = lambda micros: schema_read_at(sources, micros)
    return pipeline


def are_sound(pipeline: Pipeline, spark: "SparkSession") -> bool:
    """Return whether tables and histories are what log and copies make."""
    return all(
        check(pipeline, spark, EVERYTHING).passed for check in (check_tables_equal_log, check_histories)
    )


def versions(pipeline: Pipeline, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of all versions, and their interval in microseconds."""
    rows = [
        (
            *(row[column] for column in columns),
            from_datetime(row["valid_from"]),
            from_datetime(row["valid_to"]) if row["valid_to"] is not None else None,
        )
        for row in rows_of(pipeline, f"{name}__history")
    ]
    return sorted(rows, key=repr)


def test_copied_rows_are_the_first_versions(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """They begin at the copy's moment and name no transaction; a rebuild and an explanation say the same."""
    position = NOW - 1
    pipeline = with_options(bank_of(session_lake, 3), accounts=KEEPS_ALL)
    feed(
        pipeline,
        position + 5,
        opening(3, 100, position),
        *transfer({1: 90, 2: 110}, position + 1),
        closing(2, position + 2),
    )
    copy_tables(pipeline, spark)
    run_steps(pipeline, spark)
    expected = [
        (1, 100, position, position + 1),
        (1, 90, position + 1, None),
        (2, 100, position, position + 1),
        (2, 110, position + 1, position + 2),
        (3, 100, position, None),
    ]
    assert sorted(expected, key=repr) == versions(pipeline, "accounts", "id", "balance")
    authors = {(row["id"], row["transaction_id"]) for row in rows_of(pipeline, "accounts__history")}
    moved = f"transfer-{position + 1}"
    assert {(1, None), (1, moved), (2, None), (2, moved), (3, None)} == authors
    rows_by_id = {row["id"]: (row["balance"], row["__deleted"]) for row in rows_of(pipeline, "accounts")}
    assert rows_by_id == {1: (90, False), 2: (110, True), 3: (100, False)}
    assert are_sound(pipeline, spark)
    rebuild_table(pipeline, spark, "accounts__history")
    assert sorted(expected, key=repr) == versions(pipeline, "accounts", "id", "balance")
    explanation = explain_row(pipeline, "accounts", "1")
    assert explanation.provenance.values == {"owner": "owner 1", "balance": "90"}
    assert explanation.provenance.set_by == {"owner": 0, "balance": 1}
    untouched = explain_row(pipeline, "accounts", "3")
    assert (len(untouched.provenance.steps), untouched.provenance.values) == (
        0,
        {"owner": "owner 3", "balance": "100"},
    )


def test_options_switched_on_later_count_the_copy(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """History and deleted rows of a table that was copied begin with the copy, whenever they are wanted."""
    plain = bank_of(session_lake, 2)
    feed(plain, NOW + 5, *transfer({1: 90, 2: 110}, NOW + 1), closing(2, NOW + 2))
    copy_tables(plain, spark)
    run_steps(plain, spark)
    pipeline = with_options(plain, accounts=KEEPS_ALL)
    run_steps(pipeline, spark)
    rows_by_id = {row["id"]: (row["balance"], row["__deleted"]) for row in rows_of(pipeline, "accounts")}
    assert rows_by_id == {1: (90, False), 2: (110, True)}
    assert len(versions(pipeline, "accounts", "id")) == 4
    assert are_sound(pipeline, spark)


@spark_cases(1)
@given(life=lives().filter(lambda life: len(life[1]) > 1))
@example(life=(retyped_source(), [START + STEP, START + 3 * STEP]))
def test_whatever_changes_all_versions_are_kept(
    spark: "SparkSession", session_lake: LakeSettings, life: tuple[EvolvingSource, list[int]]
) -> None:
    """Columns come, go and change their type: the versions of each moment are the source's rows of then."""
    source, ends = life
    pipeline = keeping(session_lake, source)
    cycles = {}
    for end in ends:
        read_until(pipeline, end, source)
        cycles[end] = run_steps(pipeline, spark).cycle
    assert are_sound(pipeline, spark)
    rows = rows_of(pipeline, "notes__history")
    columns = pipeline.schema_history.tables["notes"]
    for end, cycle in cycles.items():
        # What each of the source's columns of then is called by now.
        names = {
            version.name: version.lake_name
            for version in columns.versions
            if version.since.cycle <= cycle and (version.until is None or version.until.cycle > cycle)
        }
        then = [
            {name: row[lake_name] for name, lake_name in names.items()}
            for row in rows
            if from_datetime(row["valid_from"]) <= end
            and (row["valid_to"] is None or from_datetime(row["valid_to"]) > end)
        ]
        assert source.typed_rows_at(end) == sorted(then, key=lambda row: int(row["id"]))


def test_a_table_that_is_recreated_ends_all_versions(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The rows of the dropped table stay in the history, and end when the new one begins."""
    notes, tags = EvolvingSource("notes"), EvolvingSource("tags", columns={})
    pipeline = with_options(keeping(session_lake, notes, tags), tags=KEEPS_ALL)
    steps: list[tuple[dict[str, str], list[str]]] = [
        ({"a": "STRING"}, ["1", "2"]),
        ({}, []),
        ({"a": "STRING"}, ["2"]),
    ]
    for number, (columns, keys) in enumerate(steps):
        tags.columns, tags.rows = dict(columns), {}
        for key in keys:
            tags.write(key, number + 1, ValueCaptureType.NEW_ROW, ("a",))
        # A table that has gone is missed when anything else happens.
        notes.write("1", number + 1, ValueCaptureType.NEW_ROW, ("a",))
        for source in (notes, tags):
            source.end_step()
        read_until(pipeline, START + number * STEP, notes, tags)
        run_steps(pipeline, spark)
    again = START + 2 * STEP
    expected = [(1, "v1", START, again), (2, "v1", START, again), (2, "v3", again, None)]
    assert expected == versions(pipeline, "tags", "id", "a")
    assert [row["id"] for row in rows_of(pipeline, "tags")] == [2]
    assert [step.change.commit_micros for step in explain_row(pipeline, "tags", "2").provenance.steps] == [
        again
    ]
    with pytest.raises(RowNotFound, match="since it was recreated"):
        explain_row(pipeline, "tags", "1")
    assert are_sound(pipeline, spark)
