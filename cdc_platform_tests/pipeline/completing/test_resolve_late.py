"""Changes that a replay brings late have the values of their own moment, whatever the tables have by then."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.quarantined_records import HeldFilter
from cdc_platform.pipeline.core.pipeline import open_pipeline
from cdc_platform.pipeline.core.settings import PipelineSettings
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.settings.settings import FilesInput, NullPolicy, Strategy
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.pipelines import log_rows, quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

HELD: Final[dict[str, Any]] = {"big": DEFAULT_PLACEHOLDER, "xs": None}
"""What goes to quarantine while nobody has said what null means."""


def messages() -> tuple[list[str], list[str]]:
    """Return messages whose updates to 100 and more go to quarantine, and one for the cycle of the replay."""
    sent = Connector()
    for key in (1, 2, 3):
        sent.begin()
        sent.insert(key)
        sent.update(key, n=1, big=f"large {key}", xs=[key])
        sent.end()
    for key in (1, 2, 3):
        sent.begin()
        sent.update(key, n=100 + key, **HELD)
        sent.end()
    sent.begin()
    # The key of another row, a newer value, and another key of the row.
    sent.delete(1)
    sent.insert(1)
    sent.update(1, n=2, big="other row", xs=[7])
    sent.update(2, n=2, big="newer", xs=[8])
    sent.move(3, 4, n=2, big=DEFAULT_PLACEHOLDER, xs=[3])
    sent.end()
    begun = len(sent.lines)
    sent.begin()
    sent.update(2, n=3, big=DEFAULT_PLACEHOLDER, xs=[8])
    sent.end()
    return sent.lines[:begun], sent.lines[begun:]


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
    told = replace(source, null_policies={"*": NullPolicy.UNAVAILABLE})
    pipeline = open_pipeline(replace(settings, source=told))
    replay_records(pipeline, HeldFilter())
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
        values = {one["n"]: (one["big"], [*map(int, one["xs"])]) for one in logged if one["n"] in moments}
        assert moments == values
    assert failed_checks(pipeline, spark).keys() <= {"values_resolved"}


def test_a_late_change_takes_no_value_of_a_former_type(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """It is read by the type that its column has by now, which nobody knows the value in."""
    sent, place = Connector(), FilesInput(str(tmp_path))
    for row in ({"n": 1, "big": "{}", "xs": [1]}, {"n": 100, **HELD}, {"n": 2, "big": "{}", "xs": [2]}):
        sent.begin()
        sent.update(1, **row)
        sent.end()
    *before, begin, update, end = sent.lines
    source = settings_with(input=place, has_transaction_topic=True, strategy=Strategy.ENRICH)
    settings = PipelineSettings("late_type", source, session_lake)
    append(tmp_path / "events.jsonl", before)
    sync(open_pipeline(settings), spark)
    columns = {TABLE: {**COLUMNS[TABLE], "big": "jsonb"}}
    told = replace(source, null_policies={"*": NullPolicy.UNAVAILABLE}, columns=columns)
    pipeline = open_pipeline(replace(settings, source=told))
    append(tmp_path / "events.jsonl", [begin, update, end])
    replay_records(sync(pipeline, spark), HeldFilter())
    pipeline = sync(pipeline, spark)
    (late,) = (row for row in log_rows(pipeline) if '"n":100' in (row["new_values"] or ""))
    expected = ('{"n":100,"xs":[1]}', ["big"])
    assert expected == (late["new_values"], late["unavailable_columns"])
