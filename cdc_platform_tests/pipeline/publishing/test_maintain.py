"""After a cycle, maintenance looks at the tables that it has changed and, by turns, at some of the others."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import STATS
from cdc_platform.model.base.schemas import CHANGE_LOG
from cdc_platform.model.base.stored_names import CYCLE, LOG
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.maintain import MAX_LOOKED_AT, MaintenanceRun, choose_tables
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.pipelines import make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: Final = tuple(
    table(f"t{number:03}", {"id": "INT64"}, {"a": "INT64"}) for number in range(2 * MAX_LOOKED_AT + 1)
)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline of so many tables that three turns are needed."""
    folder: Path = tmp_path_factory.mktemp("lake")
    return make_pipeline(LakeSettings(str(folder)), TABLES)


def looked_at(pipeline: Pipeline, now_micros: int, *, is_thorough: bool = False) -> set[str]:
    """Return the tables that a maintenance at a moment looks at; it needs no Spark for that."""
    return {*choose_tables(MaintenanceRun(pipeline, cast("SparkSession", None), is_thorough, now_micros))}


def test_each_table_has_its_turn_while_no_cycle_comes(pipeline: Pipeline) -> None:
    """A source that is silent brings no cycle, and what cycles have left is still maintained."""
    seen = [looked_at(pipeline, now_micros) for now_micros in range(3)]
    assert max(map(len, seen)) <= MAX_LOOKED_AT
    assert {schema.name for schema in TABLES} == set().union(*seen)


def test_a_thorough_maintenance_looks_at_all_tables(pipeline: Pipeline) -> None:
    """None of them waits for its turn."""
    assert {schema.name for schema in TABLES} == looked_at(pipeline, 0, is_thorough=True)


def test_the_tables_that_a_cycle_has_changed_have_a_turn_after_it(pipeline: Pipeline) -> None:
    """They may be due, whether or not it is their turn; those of the cycle before wait for theirs."""
    out_of_turn = sorted({schema.name for schema in TABLES} - looked_at(pipeline, 0))
    for cycle, name in enumerate(out_of_turn[:2], start=1):
        row = pa.Table.from_pylist([{"cycle": cycle}], CHANGE_LOG)
        properties = {CYCLE: str(cycle), STATS: json.dumps({name: [1, 0, 0]})}
        pipeline.lake.system_table(LOG).append(row, snapshot_properties=properties)
    assert {out_of_turn[1]} == {*out_of_turn} & looked_at(pipeline, 0)
