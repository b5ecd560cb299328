"""Late changes of a replay have the values of their own moment, not those that the tables have now."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER, NullPolicy, Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.pipelines import log_rows, quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

UNSENT: Final[dict[str, Any]] = {"big": DEFAULT_PLACEHOLDER, "xs": None}
"""Columns whose NULL sends an event to quarantine until a policy is set."""


def messages() -> tuple[list[str], list[str]]:
    """Return messages whose updates to 100 and more go to quarantine, and one for the cycle of the replay."""
    connector = Connector()
    for key in (1, 2, 3):
        connector.begin()
        connector.insert(key)
        connector.update(key, n=1, big=f"large {key}", xs=[key])
        connector.end()
    for key in (1, 2, 3):
        connector.begin()
        connector.update(key, n=100 + key, **UNSENT)
        connector.end()
    connector.begin()
    # The key of another row, a newer value, and another key of the row.
    connector.delete(1)
    connector.insert(1)
    connector.update(1, n=2, big="other row", xs=[7])
    connector.update(2, n=2, big="newer", xs=[8])
    connector.move(3, 4, n=2, big=DEFAULT_PLACEHOLDER, xs=[3])
    connector.end()
    begun = len(connector.lines)
    connector.begin()
    connector.update(2, n=3, big=DEFAULT_PLACEHOLDER, xs=[8])
    connector.end()
    return connector.lines[:begun], connector.lines[begun:]


@pytest.mark.parametrize("strategy", [Strategy.OMIT, Strategy.ENRICH])
def test_a_late_change_takes_no_value_from_its_future(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, strategy: Strategy
) -> None:
    """Neither that of another row under its key, nor a newer one; nor does what is newer take its values."""
    before, later = messages()
    source = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True, strategy=strategy)
    options = {TABLE: TableOptions(history=True)}
    settings = PipelineSettings(f"late_{strategy}", source, session_lake, table_options=options)
    append(tmp_path / "events.jsonl", before)
    pipeline = sync(open_pipeline(settings), spark)
    assert len(quarantined_rows(pipeline)) == 3
    source_settings = replace(source, null_policies={"*": NullPolicy.UNAVAILABLE})
    pipeline = open_pipeline(replace(settings, source=source_settings))
    replay_records(pipeline, QuarantineFilter())
    append(tmp_path / "events.jsonl", later)
    pipeline = sync(pipeline, spark)
    rows = {row["id"]: (row["n"], row["big"], row["xs"]) for row in rows_of(pipeline, TABLE)}
    expected = {1: (2, "other row", [7]), 2: (3, "newer", [8]), 4: (2, "large 3", [3])}
    assert expected == rows
    versions = {row["n"]: (row["big"], row["xs"]) for row in rows_of(pipeline, f"{TABLE}__history")}
    moments = {100 + key: (f"large {key}", [key]) for key in (1, 2, 3)} | {3: ("newer", [8])}
    assert moments == {n: versions[n] for n in moments}
    if strategy is Strategy.ENRICH:
        logged = [json.loads(row["new_values"]) for row in log_rows(pipeline) if row["new_values"]]
        values = {
            item["n"]: (item["big"], [*map(int, item["xs"])]) for item in logged if item["n"] in moments
        }
        assert moments == values
    assert failed_checks(pipeline, spark).keys() <= {"values_resolved"}


def test_a_late_change_takes_no_value_of_a_former_type(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """It is read by its column's present type, in which the value is unknown."""
    connector, place = Connector(), FilesInput(str(tmp_path))
    for row in ({"n": 1, "big": "{}", "xs": [1]}, {"n": 100, **UNSENT}, {"n": 2, "big": "{}", "xs": [2]}):
        connector.begin()
        connector.update(1, **row)
        connector.end()
    *before, begin, update, end = connector.lines
    source = settings_with(input=place, has_transaction_topic=True, strategy=Strategy.ENRICH)
    settings = PipelineSettings("late_type", source, session_lake)
    append(tmp_path / "events.jsonl", before)
    sync(open_pipeline(settings), spark)
    columns = {TABLE: {**COLUMNS[TABLE], "big": "jsonb"}}
    source_settings = replace(source, null_policies={"*": NullPolicy.UNAVAILABLE}, columns=columns)
    pipeline = open_pipeline(replace(settings, source=source_settings))
    append(tmp_path / "events.jsonl", [begin, update, end])
    replay_records(sync(pipeline, spark), QuarantineFilter())
    pipeline = sync(pipeline, spark)
    (late,) = (row for row in log_rows(pipeline) if '"n":100' in (row["new_values"] or ""))
    expected = ('{"n":100,"xs":[1]}', ["big"])
    assert expected == (late["new_values"], late["unavailable_columns"])
