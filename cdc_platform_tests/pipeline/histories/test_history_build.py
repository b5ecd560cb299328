"""Histories: every version of every row, for any cycles, and without duplicates after any kill."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, fact, head
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.model.base.timestamps import from_datetime, to_datetime
from cdc_platform.model.schema.table_options import TableOptions, history_name
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.table_checks import check_histories
from cdc_platform.pipeline.histories import history_build as history
from cdc_platform.pipeline.histories import local_history
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.example_tables import TABLES
from cdc_platform_tests.fake_stream import ReadSchedule, raw_rows
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, closing, feed_cycle, opening, transfer
from cdc_platform_tests.strategies import spark_cases, streams
from cdc_platform_tests.support.history import History
from cdc_platform_tests.support.pipelines import (
    START,
    append_raw,
    feed,
    found_table,
    make_pipeline,
    merging_by_spark,
    rows_of,
    run_steps,
    state_of,
)
from cdc_platform_tests.typed_values import typed_row
from cdc_platform_tests.versions import Version, kept_rows_at, versions_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

READ_AT_ONCE = 3
"""Number of reads that a cycle merges: a merge of six tables takes seconds."""

EVERY_OPTION = {
    "accounts": TableOptions(history=True, soft_delete=True),
    "orders": TableOptions(history=True),
    "memberships": TableOptions(history=True, soft_delete=True),
}


class Killed(BaseException):
    """Stands for the end of a process: nothing may catch it."""


@spark_cases(1)
@given(stream=streams(max_transactions=24).filter(lambda stream: len(stream[0].transactions) >= 12))
def test_histories_and_kept_rows_equal_the_model_at_every_cut(
    spark: "SparkSession", session_lake: LakeSettings, stream: tuple[History, ReadSchedule]
) -> None:
    """For any changes of rows, and any distribution over cycles, the versions are those of the model."""
    source, schedule = stream
    pipeline = make_pipeline(
        session_lake, TABLES, first_micros=schedule.tree.start_micros, options=EVERY_OPTION
    )
    batches = raw_rows(source, schedule)
    ways = itertools.cycle((pipeline, merging_by_spark(pipeline)))
    for number, batch in enumerate(batches, 1):
        append_raw(pipeline, batch.cycle, batch.rows, position_micros=0)
        if number % READ_AT_ONCE == 0 or number == len(batches):
            run_steps(next(ways), spark)
    for cut in list_cuts(pipeline.lake):
        versions, rows_kept = (
            versions_at(source, cut.position_micros),
            kept_rows_at(source, cut.position_micros),
        )
        for table in pipeline.histories:
            name = history_name(table.name)
            expected = [version_row(table, version) for version in versions[table.name]]
            assert sorted(expected, key=repr) == rows_of(pipeline, name, cut.tables[name])
        for name in ("accounts", "memberships"):
            table = source.table(name)
            rows = [
                {
                    **key_and_values(table, key, row.row),
                    "__deleted": row.deleted_micros is not None,
                    "__deleted_at": moment(row.deleted_micros),
                }
                for key, row in rows_kept[name].items()
            ]
            assert sorted(rows, key=repr) == rows_of(pipeline, name, cut.tables[name])
    assert check_histories(pipeline, spark, EVERYTHING).passed


def key_and_values(table: TableSchema, key: Any, row: Any) -> dict[str, Any]:
    """Return a row of the model with Python values."""
    names = [column.name for column in table.key_columns]
    return typed_row(table, {**dict(zip(names, key, strict=True)), **row})


def version_row(table: TableSchema, version: Version) -> dict[str, Any]:
    """Return a version of the model as the row that a history has."""
    return {
        **key_and_values(table, version.key, version.row),
        "valid_from": moment(version.since_micros),
        "valid_to": moment(version.until_micros),
        "is_current": version.until_micros is None,
        "transaction_id": version.transaction_id,
    }


def moment(micros: int | None) -> Any:
    """Return a moment as a table gives it back."""
    return to_datetime(micros) if micros is not None else None


def bank_with_history(lake: LakeSettings) -> Pipeline:
    """Return the bank, whose accounts keep a history."""
    return bank_pipeline(lake, accounts=TableOptions(history=True))


def bank_versions(
    pipeline: Pipeline, snapshot_id: int | None = None
) -> list[tuple[int, int, float, float | None]]:
    """Return id and balance of all versions, and their interval in seconds since the start."""
    rows = rows_of(pipeline, "accounts__history", snapshot_id)
    versions = [
        (row["id"], row["balance"], seconds(row["valid_from"]) or 0, seconds(row["valid_to"])) for row in rows
    ]
    return sorted(versions, key=lambda version: version[:3])


def seconds(timestamp: Any) -> int | None:
    """Return whole seconds since the start."""
    return (from_datetime(timestamp) - START) // SECOND if timestamp is not None else None


FIRST = [(1, 100, 1, None), (2, 100, 1, None), (3, 100, 1, None)]
SECOND_CYCLE = [
    (1, 90, 2, None),
    (1, 100, 1, 2),
    (2, 100, 1, 2),
    (2, 110, 2, None),
    (3, 100, 1, 2),
    (4, 100, 2, None),
]


def test_a_cut_names_the_history_and_a_killed_extension_is_begun_again(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partial updates keep other columns, older cuts stay, and no version is visible before its cut."""
    pipeline = bank_with_history(session_lake)
    feed_cycle(pipeline, 1)
    first = run_steps(pipeline, spark)
    feed_cycle(pipeline, 2)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    by_spark = merging_by_spark(pipeline)
    for way, module, step, death in (
        *((by_spark, history, step, _die) for step in ("append_versions", "close_versions")),
        (pipeline, local_history, "to_table_rows", _die),
        (pipeline, history, "commit_versions", _dying_after(local_history.commit_versions)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, step, death)
            with pytest.raises(Killed):
                extend_histories(way, spark, [pipeline.table("accounts")])
        assert bank_versions(pipeline) == FIRST, f"killed at `{step}`"
    extend_histories(pipeline, spark, [pipeline.table("accounts")])
    assert bank_versions(pipeline) == FIRST
    second = publish_cut(pipeline)
    assert second is not None
    assert (
        SECOND_CYCLE == bank_versions(pipeline) == bank_versions(pipeline, second.tables["accounts__history"])
    )
    assert bank_versions(pipeline, first.tables["accounts__history"]) == FIRST
    assert {row["owner"] for row in rows_of(pipeline, "accounts__history")} == {
        f"owner {account}" for account in (1, 2, 3, 4)
    }
    before = state_of(pipeline)
    run_steps(pipeline, spark)
    assert before == state_of(pipeline)
    maintain_lake(pipeline, spark, thorough=True)
    assert bank_versions(pipeline) == SECOND_CYCLE
    spark.sql(f"DELETE FROM {pipeline.lake.spark_table('accounts__history')} WHERE id = 1")
    assert bank_versions(pipeline) != SECOND_CYCLE
    rebuild_table(pipeline, spark, "accounts__history")
    assert bank_versions(pipeline) == SECOND_CYCLE


def same(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline."""
    return pipeline


@pytest.mark.parametrize(("extending", "engine"), [(same, "cdc_platform"), (merging_by_spark, "spark")])
def test_a_source_that_lies_about_new_keys_gets_no_second_current_version(
    spark: "SparkSession",
    session_lake: LakeSettings,
    extending: Callable[[Pipeline], Pipeline],
    engine: str,
) -> None:
    """An update of a row without an insert creates a version, and all others end correctly."""
    pipeline = extending(bank_with_history(session_lake))
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    begun = START + 2 * SECOND
    feed(
        pipeline,
        begun + SECOND - 1,
        closing(3, begun),
        opening(3, 5, begun + 1),
        opening(1, 7, begun + 2),
        *transfer({8: 1, 2: 99}, begun + 3),
    )
    order_changes(pipeline, spark)
    (outcome,) = extend_histories(pipeline, spark, [pipeline.table("accounts")])
    assert (outcome.fell_back, outcome.appended, outcome.updated) == (True, 4, 3)
    version = head(found_table(pipeline, "accounts__history"), BRANCH)
    assert version is not None
    assert engine == fact(version, "engine-name")
    run_steps(pipeline, spark)
    assert bank_versions(pipeline) == [
        (1, 7, 2, None),
        (1, 100, 1, 2),
        (2, 99, 2, None),
        (2, 100, 1, 2),
        (3, 5, 2, None),
        (3, 100, 1, 2),
        (8, 1, 2, None),
    ]


def _die(*_args: object, **_kwargs: object) -> None:
    raise Killed


def _dying_after(step: Callable[..., object]) -> Callable[..., None]:
    def run(*args: object) -> None:
        step(*args)
        raise Killed

    return run
