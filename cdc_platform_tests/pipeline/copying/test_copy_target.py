"""Tables that copies are written into, and copies of tables that the source drops meanwhile."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.lake.state.copies import (
    COPY_BRANCH,
    CopyPlan,
    columns_to_text,
    load_copy_progress,
    load_plans,
    save_plans,
)
from cdc_platform.lake.state.copy_columns import replace_columns
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.copying import chunks, copy
from cdc_platform.pipeline.copying.chunks import copy_chunks
from cdc_platform.pipeline.copying.copy import NO_COPY, copy_tables, remove_orphans
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publication
from cdc_platform_tests.pipeline.bank import NOW, balances, bank_of
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    START,
    TRANSFERS,
    data_change,
    feed,
    found_table,
    make_pipeline,
    run_steps,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = pa.table({"id": [1]})
NARROW: Final = columns_to_text(replace(ACCOUNTS, columns=ACCOUNTS.columns[:2]))
"""The table of the bank with fewer columns, as the text of a plan."""
TABLES: Final = {
    # Where the table in the lake has rows.
    "copied": (COPY_BRANCH,),
    "written": (COPY_BRANCH, "main"),  # somebody has put rows where readers look
    "foreign": ("main",),  # it was never copied into
    "fresh": (),  # somebody else has just made it
    "unplanned": (COPY_BRANCH,),  # no copy of the pipeline was ever planned
    "watched": (COPY_BRANCH,),  # the source still has it
    "published": (COPY_BRANCH,),  # a cut shows it
}


@pytest.mark.integration
def test_only_what_a_copy_has_left_of_a_dropped_table_is_removed(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A table of the same name that holds anything else, or that a cut names, stays as it is."""
    pipeline = make_pipeline(session_lake, ())
    lake = pipeline.lake
    for name, branches in TABLES.items():
        table = lake.catalog.create_table(f"{pipeline.name}.{name}", ROWS.schema)
        # A branch needs a snapshot to begin with.
        table.append(ROWS if "main" in branches else ROWS.schema.empty_table())
        if COPY_BRANCH in branches:
            table.append(ROWS, branch=COPY_BRANCH)
    histories = {name: ColumnHistory(name, is_watched=False, is_dropped=name != "watched") for name in TABLES}
    pipeline.use_history(SchemaHistory(cycle=1, tables=histories))
    plans = [CopyPlan(name, 1, START, START, "[]", ("a",)) for name in TABLES if name != "unplanned"]
    save_plans(lake, plans)
    append_cut(lake, Cut(1, START, 1, {"published": 1}, START))

    (text,) = remove_orphans(pipeline, spark)
    assert text.startswith("The source dropped `copied` before its copy was complete")
    copies = {name: head(found_table(pipeline, name), COPY_BRANCH) for name in TABLES}
    assert [name for name, copied in copies.items() if copied and not count_rows(copied)] == ["copied"]
    folder = Path(found_table(pipeline, "copied").location().removeprefix("file:"))
    assert [*folder.rglob("*.parquet")] == []
    assert remove_orphans(pipeline, spark) == ()


def copying(spark: "SparkSession", lake: LakeSettings, copies: int) -> Pipeline:
    """Return a bank that has copied some times, whose log then shows that the source has dropped a table."""
    pipeline = bank_of(lake, 20, ACCOUNTS, TRANSFERS)
    source = source_of(pipeline)
    source.schema_at = lambda micros: SchemaRead(micros, source.schemas, {}, {})
    for moment in (NOW, NOW + 10):
        mods = {"tid": str(moment)}, {"amount": 1}
        row = data_change("transfers", ModType.INSERT, mods, at_micros=moment, transaction=str(moment))
        feed(pipeline, moment, row)
        for _ in range(copies if moment == NOW else 0):
            copy_tables(pipeline, spark)
        source.schemas = (TRANSFERS,)
    order_changes(pipeline, spark)
    assert pipeline.schema_history.tables["accounts"].is_dropped
    return pipeline


@pytest.mark.integration
def test_a_complete_copy_is_not_removed_while_another_run_publishes_it(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut would name a table that is gone."""
    pipeline = copying(spark, session_lake, copies=3)
    merge_tables(pipeline, spark, pipeline.tables)
    interrupt_once(monkeypatch, publication, "append_cut", lambda: remove_orphans(pipeline, spark))
    cut = publication.publish_cut(pipeline)
    assert cut is not None
    assert "accounts" in cut.tables
    assert len(balances(pipeline)) == 20


@pytest.mark.integration
def test_a_copy_that_another_run_completes_meanwhile_is_not_removed(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run does not know yet that the source has dropped the table."""
    pipeline = copying(spark, session_lake, copies=1)

    def rival() -> None:
        progress = load_copy_progress(
            found_table(pipeline, "accounts"), load_plans(pipeline.lake)["accounts"]
        )
        assert not progress.is_complete
        while not progress.is_complete:
            progress = copy_chunks(pipeline, spark, progress)

    interrupt_once(monkeypatch, copy, "move_branch", rival)
    with pytest.raises(CommitConflict):
        copy_tables(pipeline, spark)
    assert copy_tables(pipeline, spark) == NO_COPY
    merge_tables(pipeline, spark, pipeline.tables)
    publication.publish_cut(pipeline)
    assert len(balances(pipeline)) == 20


@pytest.mark.integration
@pytest.mark.parametrize("step", ["has_columns", "count_rows", "replace_columns"])
@pytest.mark.parametrize("accounts", [0, 20])
def test_a_table_that_another_run_publishes_meanwhile_keeps_its_columns_and_rows(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    accounts: int,
) -> None:
    """This run has options for other columns, for which it replaces those of a table that is in no cut."""
    pipeline = bank_of(session_lake, accounts, ACCOUNTS)
    feed(pipeline, NOW)
    copy_tables(pipeline, spark)
    plan = load_plans(pipeline.lake)["accounts"]
    other = replace(plan, columns=NARROW)

    def rival() -> None:
        for second in range(1, 6):
            feed(pipeline, NOW + second)
            copy_tables(pipeline, spark)
            run_steps(pipeline, spark)
        assert len(balances(pipeline)) == accounts

    interrupt_once(monkeypatch, copy, step, rival)
    with pytest.raises(CommitConflict):
        copy.prepare_target(pipeline, spark, other)
    assert len(balances(pipeline)) == accounts
    assert {"id", "owner", "balance"} == {*found_table(pipeline, "accounts").schema().column_names}
    run_steps(pipeline, spark)


@pytest.mark.integration
def test_a_run_whose_plan_is_outdated_replaces_no_columns(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The newer plan has no chunk yet, so the table alone does not show it."""
    pipeline = bank_of(session_lake, 20, ACCOUNTS)
    feed(pipeline, NOW)
    copy_tables(pipeline, spark)
    before = load_plans(pipeline.lake)["accounts"]
    newer = replace(before, number=2, columns=NARROW)
    save_plans(pipeline.lake, [newer])
    prepared = copy.prepare_target(pipeline, spark, newer)
    with pytest.raises(CommitConflict, match="planned the copy of `accounts` again"):
        copy.prepare_target(pipeline, spark, before)
    assert found_table(pipeline, "accounts").metadata == prepared.metadata


@pytest.mark.integration
def test_chunks_are_not_copied_into_columns_of_another_plan(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the copy would be complete without the values of columns that the table lacks."""
    pipeline = bank_of(session_lake, 20, ACCOUNTS)
    feed(pipeline, NOW)
    narrow = replace(ACCOUNTS, columns=ACCOUNTS.columns[:2])
    interrupt_once(
        monkeypatch,
        chunks,
        "align_branch",
        lambda: replace_columns(found_table(pipeline, "accounts"), narrow),
    )
    assert isinstance(copy_tables(pipeline, spark).failure, CommitConflict)
    while copy_tables(pipeline, spark).is_pending:
        pass
    run_steps(pipeline, spark)
    assert balances(pipeline).keys() == {*range(1, 21)}
    assert None not in balances(pipeline).values()


@pytest.mark.integration
def test_a_copy_that_starts_over_without_rows_is_complete(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The chunks of the former plan do not count, and the table is published, empty."""
    pipeline = bank_of(session_lake, 9)
    source = source_of(pipeline)
    source.plans.expiring = {"accounts"}
    feed(pipeline, NOW + 50)
    copy_tables(pipeline, spark)
    source.now_micros, source.rows_at = NOW + 20, lambda _table, _micros: iter(())

    (note,) = copy_tables(pipeline, spark).notes
    assert "starts over after 1 of 2 chunks" in note
    for _ in range(2):
        copy_tables(pipeline, spark)
    assert {"accounts"} == {*run_steps(pipeline, spark).tables}
    assert balances(pipeline) == {}
