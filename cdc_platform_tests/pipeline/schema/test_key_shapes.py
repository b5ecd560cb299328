"""Events of another database than their table, and values to check, found by the shapes of a window."""

import json
from pathlib import Path

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.observed_columns import types_without_columns
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.window_content import ShapeKey
from cdc_platform.pipeline.schema.key_shapes import MAX_FITTING_SHAPES, find_foreign_keys, tables_to_check
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


def test_only_tables_with_values_that_may_not_fit_are_checked() -> None:
    """A query of a cycle does not grow with the tables whose events all fit by their types."""
    fitting_types = [(f"t{number}", "[1]") for number in range(2 * MAX_FITTING_SHAPES)]
    shapes: list[ShapeKey] = [(table, "INSERT", None, text) for table, text in fitting_types]
    assert tables_to_check(shapes, fitting_types) == {}

    shapes += [("t0", "INSERT", None, "[2]"), ("t1", "DELETE", None, None), ("new", "INSERT", None, "[1]")]
    shapes.append((None, "INSERT", None, None))
    assert tables_to_check(shapes, fitting_types) == {"new": [], "t0": ["[1]"], "t1": ["[1]"]}


def test_one_query_names_a_limited_number_of_shapes() -> None:
    """Beyond the limit, values that fit are checked, too: that costs time only."""
    fitting_types = [("t", f"[{number}]") for number in range(2 * MAX_FITTING_SHAPES)]
    checked_tables = tables_to_check([("t", "INSERT", None, "[]")], fitting_types)
    assert checked_tables.keys() == {"t"}
    assert len(checked_tables["t"]) == MAX_FITTING_SHAPES
