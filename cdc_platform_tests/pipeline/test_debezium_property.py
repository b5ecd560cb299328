"""Large values that updates leave out, through all steps of a cycle, in any order of arrival."""

import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.scenarios import Row, Scenario, scenarios
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with
from cdc_platform_tests.strategies import spark_cases
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.pipelines import log_rows, reading_by_turns, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_serial: Final = itertools.count(1)
MIN_PORTIONS: Final = 2
"""Hypothesis begins with the smallest example, which shows least."""


@pytest.mark.integration
@pytest.mark.parametrize("strategy", [Strategy.OMIT, Strategy.ENRICH])
@spark_cases(1)
@given(drawn=scenarios().filter(lambda drawn: len(drawn[1]) > MIN_PORTIONS))
def test_tables_histories_and_log_have_every_value(
    spark: "SparkSession",
    session_lake: LakeSettings,
    drawn: tuple[Scenario, list[list[str]]],
    strategy: Strategy,
) -> None:
    """In portions of any size, repeated from anywhere, with a whole or partial log; nowhere is a marker."""
    scenario, portions = drawn
    options = {TABLE: TableOptions(history=True)}
    with TemporaryDirectory() as folder:
        source = settings_with(input=FilesInput(folder), has_transaction_topic=True, strategy=strategy)
        name = f"scenario_{next(_serial)}"
        pipeline = open_pipeline(PipelineSettings(name, source, session_lake, table_options=options))
        for turn, portion in enumerate(portions):
            append(Path(folder) / "events.jsonl", portion)
            pipeline = sync(reading_by_turns(pipeline, turn), spark)
    versions = rows_of(pipeline, f"{TABLE}__history") if scenario.versions else []
    assert sorted(scenario.rows.values()) == sorted(map(row_of, rows_of(pipeline, TABLE)))
    assert sorted(scenario.rows.values()) == sorted(row_of(row) for row in versions if row[IS_CURRENT])
    assert sorted(scenario.versions, key=str) == sorted(map(row_of, versions), key=str)
    assert_log(pipeline, scenario, is_whole=strategy is Strategy.ENRICH)
    assert DEFAULT_PLACEHOLDER not in str([*rows_of(pipeline, TABLE), *versions, *log_rows(pipeline)])


def row_of(row: dict[str, Any]) -> Row:
    """Return a row of the lake as the scenario has it."""
    return row["id"], row["n"], row["big"]


def assert_log(pipeline: Pipeline, scenario: Scenario, *, is_whole: bool) -> None:
    """Return whether the log has every write once, with its large value or without any part of it."""
    rows, incomplete = list[Row](), set[tuple[int, int]]()
    for change in log_rows(pipeline):
        if change["new_values"] is None:
            continue
        row = row_of(json.loads(change["keys"]) | {"big": None} | json.loads(change["new_values"]))
        rows.append(row)
        if change["unavailable_columns"]:
            incomplete.add(row[:2])
    assert not (is_whole and incomplete)
    expected = [row if row[:2] not in incomplete else (*row[:2], None) for row in scenario.written]
    assert sorted(expected, key=str) == sorted(rows, key=str)
