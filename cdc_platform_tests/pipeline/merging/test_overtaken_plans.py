"""A run that is overtaken while it plans a merge: the columns that it knows and the log fit together."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import CopyPlan, columns_to_text, save_plans
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.cycle import finish_cycle, run_cycle
from cdc_platform.pipeline.histories import history_plan
from cdc_platform.pipeline.histories.history_plan import plan_whole
from cdc_platform.pipeline.merging import merge
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.reading.read import read_generations
from cdc_platform_tests.pipeline.bank import NOW, bank_of, bank_pipeline, feed_cycle, feed_next, opening
from cdc_platform_tests.support.cycles import failed_checks, found_rows, sync
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import feed, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_a_column_that_another_run_orders_meanwhile_is_a_conflict(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table and history have the columns that the log had before; the next try adds the new one."""
    folder = StreamFolder(tmp_path)
    folder.write([user("0", "INSERT", 1, 1)])
    pipeline = sync(make_pipeline(session_lake, tmp_path, {"users": TableOptions(history=True)}), spark)

    def rival(place: int, column: str) -> None:
        other = open_pipeline(pipeline.settings)
        row = {"id": place, "name": "c", column: place}
        folder.write([MadeEvent(f"with {column}", "users", "INSERT", place, row)])
        read_generations(other, spark)
        order_changes(other, spark)

    cases = ((merge, "_missing_span", "age"), (history_plan, "pending_span", "size"))
    for place, (module, step, column) in zip((2, 4), cases, strict=True):
        folder.write([user(str(place), "INSERT", place, place)])
        interrupt_once(monkeypatch, module, step, partial(rival, place + 1, column))
        with suppress(CommitConflict):
            run_cycle(pipeline, spark)
        finish_cycle(pipeline, spark)
        pipeline = open_pipeline(pipeline.settings)
    rows = [(row["id"], row["age"], row["size"]) for row in found_rows(pipeline, "users")]
    assert rows == [(1, None, None), (2, None, None), (3, 3, None), (4, None, None), (5, None, 5)]
    assert failed_checks(pipeline, spark, "tables_equal_log", "histories_sound") == {}


def test_a_history_is_built_with_the_columns_of_its_log(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run extends the log between two looks: its changes may have other columns."""
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)

    def rival() -> None:
        feed_next(pipeline)
        order_changes(pipeline, spark)

    interrupt_once(monkeypatch, history_plan, "find_beginning", rival)
    build = plan_whole(pipeline, spark, pipeline.table("accounts"))
    assert build.source.span.until_inclusive == 1


def test_an_empty_copied_table_is_not_built_upon_what_another_run_has_published(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its base would have the rows of the log already, and each would be in the table twice."""
    pipeline = bank_of(session_lake, 0)
    columns = columns_to_text(pipeline.table("accounts"))
    save_plans(pipeline.lake, [CopyPlan("accounts", 1, NOW - 1, NOW - 1, columns, ())])
    feed(pipeline, NOW + 5, opening(1, 100, NOW + 1))
    order_changes(pipeline, spark)

    def rival() -> None:
        merge_tables(pipeline, spark, pipeline.tables)
        assert publish_cut(pipeline) is not None
        feed(pipeline, NOW + 8, opening(2, 100, NOW + 6))
        order_changes(pipeline, spark)

    interrupt_once(monkeypatch, merge, "ensure_table", rival)
    with suppress(CommitConflict):
        run_steps(pipeline, spark)
    run_steps(pipeline, spark)
    assert sorted(row["id"] for row in rows_of(pipeline, "accounts")) == [1, 2]
