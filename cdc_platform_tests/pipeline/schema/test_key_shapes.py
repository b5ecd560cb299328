"""Events of another database than their table, found by the shapes of a window."""

import json
from pathlib import Path

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import types_without_columns
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.schema.key_shapes import find_foreign_keys
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings


def shape(database: str) -> str:
    """Return the columns of events with a key; the database is empty where events leave it out."""
    key = {"name": "id", "type": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1}
    return json.dumps([key | ({"database": database} if database else {})])


@pytest.mark.parametrize(
    ("databases", "foreign"),
    [
        (["A", "B"], ["B"]),
        (["B", "A"], ["A"]),
        (["", "A", "B"], ["B"]),
        (["A", ""], []),
        (["ORCL", "orcl"], []),
    ],
)
def test_a_new_table_belongs_to_the_first_database_that_events_state(
    tmp_path: Path, databases: list[str], foreign: list[str]
) -> None:
    """Events that leave it out belong to any; upper and lower case are the same database."""
    source, lake = DatastreamSettings(str(tmp_path / "files")), LakeSettings(str(tmp_path / "lake"))
    pipeline = open_pipeline(PipelineSettings("p", source, lake))
    shapes = {("t", shape(database)): f"{place}" for place, database in enumerate(databases)}
    reasons = find_foreign_keys(pipeline, SchemaHistory(), shapes)
    assert {("t", shape(database)) for database in foreign} == reasons.keys()


@pytest.mark.parametrize(
    ("shapes", "foreign"),
    [
        ([types_without_columns("B"), shape("A")], [types_without_columns("B")]),
        ([shape("A"), types_without_columns("a")], []),
        ([types_without_columns("A"), types_without_columns("B")], [types_without_columns("B")]),
        ([types_without_columns(""), shape("A")], []),
    ],
)
def test_an_event_without_columns_states_its_database(
    tmp_path: Path, shapes: list[str], foreign: list[str]
) -> None:
    """A delete by key or address alone gives a table its database only if no event shows columns."""
    source, lake = DatastreamSettings(str(tmp_path / "files")), LakeSettings(str(tmp_path / "lake"))
    pipeline = open_pipeline(PipelineSettings("p", source, lake))
    by_place = {("t", text): f"{place}" for place, text in enumerate(shapes)}
    assert {("t", text) for text in foreign} == find_foreign_keys(pipeline, SchemaHistory(), by_place).keys()
