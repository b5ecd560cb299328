"""Histories of tables with columns that are called like a history's own: they have them under other names."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories, check_tables_equal_log
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform_tests.support.changing.copied_columns import (
    END,
    KNOWN,
    add,
    drop,
    live,
    read_until,
    retype,
    watch,
    write,
)
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.pipelines import rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KEPT: Final = TableOptions(history=True)


def put(folder: StreamFolder, table: str, position: int, **row: Any) -> None:
    """Write a row as a separate file."""
    folder.write([MadeEvent(f"{table}-{position}", table, "INSERT", position, row)])


def versions(pipeline: Pipeline, table: str, *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of the versions of all rows, by key and in their order."""
    rows = sorted(rows_of(pipeline, f"{table}__history"), key=lambda row: (row["id"], row["valid_from"]))
    return [tuple(row[name] for name in names) for row in rows]


def test_columns_of_a_history_at_the_source(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """They may come up later, be there from the beginning or before the option, and be part of the key."""
    folder = StreamFolder(tmp_path)
    options = dict.fromkeys(("late", "early", "keyed"), KEPT)
    pipeline = make_pipeline(session_lake, tmp_path, options, keys={"keyed": ("id", "valid_from")})
    put(folder, "late", 1, id=1)
    put(folder, "early", 1, id=1, Is_Current="a", transaction_id="x", valid_to__source="s", valid_to="t")
    put(folder, "keyed", 1, id=1, valid_from="k", v="1")
    put(folder, "before", 1, id=1, valid_from="b1")
    pipeline = sync(pipeline, spark)
    put(folder, "late", 3, id=1, valid_to="z3")
    put(folder, "early", 3, id=1, Is_Current="c", transaction_id="y", valid_to__source="r", valid_to="u")
    put(folder, "keyed", 3, id=1, valid_from="k", v="3")
    put(folder, "before", 3, id=1, valid_from="b3")
    put(folder, "other", 3, id=1)
    pipeline = sync(pipeline, spark)
    settings = replace(pipeline.settings, table_options={**options, "before": KEPT})
    put(folder, "late", 2, id=1, valid_to="z2")
    put(folder, "keyed", 2, id=1, valid_from="k", v="2")
    pipeline = sync(open_pipeline(settings), spark)
    for is_rebuilt in (False, True):
        for table in ("early", "keyed") if is_rebuilt else ():
            rebuild_table(pipeline, spark, f"{table}__history")
        assert versions(pipeline, "late", "valid_to__source", IS_CURRENT) == [
            (None, False),
            ("z2", False),
            ("z3", True),
        ]
        assert versions(
            pipeline,
            "early",
            *("Is_Current__source", "transaction_id__source", "valid_to__source__source", "valid_to__source"),
        ) == [("a", "x", "s", "t"), ("c", "y", "r", "u")]
        assert versions(pipeline, "keyed", "valid_from__source", "v", IS_CURRENT) == [
            ("k", "1", False),
            ("k", "2", False),
            ("k", "3", True),
        ]
        assert versions(pipeline, "before", "valid_from__source") == [("b1",), ("b3",)]
    assert found_rows(pipeline, "late") == [{"id": 1, "valid_to": "z3"}]
    assert found_rows(pipeline, "other") == [{"id": 1}]
    assert failed_checks(pipeline, spark) == {}


def test_columns_of_a_history_that_are_copied_and_change(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The copied values are in the history, and what is converted or set aside is so there, too."""
    actions = {
        2: (add("valid_to", "STRING", 3), add("is_current", "STRING", 4)),
        6: (drop("is_current"), retype("valid_to")),
        7: (add("is_current", "INT64"), write(8), write(9, "2")),
    }
    source = live("notes", actions)
    watched = watch(session_lake, source)
    pipeline = replace(watched, settings=replace(watched.settings, table_options={"notes": KEPT}))
    order_changes(pipeline, spark)
    read_until(pipeline, KNOWN + 2, source)
    while copy_tables(pipeline, spark).is_pending:
        pass
    for step in (5, END):
        read_until(pipeline, step, source)
        run_steps(pipeline, spark)
    rows = sorted(rows_of(pipeline, "notes"), key=lambda row: int(row["id"]))
    names = {"valid_to": "valid_to__source", "is_current": "is_current__source"}
    expected = [(1, b"v8", 8), (2, b"v9", 9), *((key, b"v3", None) for key in (3, 4, 6))]
    assert expected == [(row["id"], *(row[name] for name in names)) for row in rows]
    for is_rebuilt in (False, True):
        if is_rebuilt:
            rebuild_table(pipeline, spark, "notes__history")
        current = [row for row in rows_of(pipeline, "notes__history") if row[IS_CURRENT]]
        current_rows = [(row["id"], *(row[name] for name in names.values())) for row in current]
        assert expected == sorted(current_rows)
        for name in ("valid_to__string", "is_current__string"):
            assert {(row["id"], row[name]) for row in rows} == {(row["id"], row[name]) for row in current}
        assert check_histories(pipeline, spark, EVERYTHING).passed
    assert check_tables_equal_log(pipeline, spark, EVERYTHING).passed
