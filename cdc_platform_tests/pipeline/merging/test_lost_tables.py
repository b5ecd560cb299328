"""Published tables that another program drops or replaces."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import BRANCH, MAIN
from cdc_platform.lake.commits.maintenance import compact_all_files
from cdc_platform.lake.state.cut_states import cut_state
from cdc_platform.lake.state.cuts import list_cuts, newest_cut
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publication
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.pipeline.bank import (
    NOW,
    balances,
    bank_of,
    bank_pipeline,
    expected_balances,
    feed_cycle,
    feed_next,
)
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import ACCOUNTS, TRANSFERS, feed, found_table, run_steps, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
HISTORY = "accounts__history"


def drop(pipeline: Pipeline, table: str) -> None:
    """Drop a table as another program does."""
    pipeline.lake.catalog.drop_table(f"{pipeline.name}.{table}")


def replace_by_empty(pipeline: Pipeline, table: str) -> None:
    """Drop a table, and create an empty one of the same name and columns."""
    schema = found_table(pipeline, table).schema()
    drop(pipeline, table)
    created = pipeline.lake.catalog.create_table(f"{pipeline.name}.{table}", schema)
    created.append(schema.as_arrow().empty_table())


def opened_again(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline as another process opens it, which remembers nothing of its tables."""
    return replace(pipeline)


@pytest.mark.parametrize("harm", [drop, replace_by_empty])
@pytest.mark.parametrize("table", ["accounts", HISTORY])
def test_a_lost_table_stops_the_pipeline_until_it_is_rebuilt(
    spark: "SparkSession", session_lake: LakeSettings, harm: Callable[[Pipeline, str], None], table: str
) -> None:
    """Cycles and a cut alone name the table, the cut and the way out, and create no empty table instead."""
    bank = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    feed_cycle(bank, 1)
    run_steps(bank, spark)
    cut = newest_cut(bank.lake)
    harm(bank, table)
    bank = opened_again(bank)
    damage = rf"table `{table}`: another program has .* of the newest cut, 1\..*`rebuild: true`"
    with pytest.raises(LakeDamaged, match=damage):
        publish_cut(bank)
    with pytest.raises(LakeDamaged, match=damage):
        failed_checks(bank, spark, "histories_sound" if table == HISTORY else "tables_equal_log")
    feed_next(bank)
    for _ in range(2):
        with pytest.raises(LakeDamaged, match=damage):
            run_steps(bank, spark)
    assert newest_cut(bank.lake) == cut
    assert (bank.lake.table(table) is None) == (harm is drop)
    assert f"table `{table}`" in read_status(bank).unreadable[f"table {table}"]
    rebuild_table(bank, spark, table)
    assert balances(bank) == expected_balances(2)
    assert read_status(bank).unreadable == {}
    assert failed_checks(bank, spark, "tables_equal_log", "histories_sound") == {}


def expire_version(pipeline: Pipeline, table: str) -> None:
    """Drop the platform's branch of a table, and expire the snapshot of the newest cut."""
    stored_table, cut = found_table(pipeline, table), newest_cut(pipeline.lake)
    assert cut is not None
    stored_table.manage_snapshots().remove_branch(BRANCH).commit()
    stored_table.refresh().maintenance.expire_snapshots().by_id(cut.tables[table]).commit()
    assert found_table(pipeline, table).metadata.snapshot_by_id(cut.tables[table]) is None


def test_a_version_that_another_program_compacts_and_expires_is_not_lost(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The table has the same rows, so cycles and checks go on with what the program has made of them."""
    bank = bank_pipeline(session_lake, accounts=TableOptions(soft_delete=True))
    for number in (1, 2):
        feed_cycle(bank, number)
        run_steps(bank, spark)
    assert compact_all_files(spark, found_table(bank, "accounts"), 2**25) > 0
    expire_version(bank, "accounts")
    for process in (bank, opened_again(bank)):
        assert failed_checks(process, spark, "tables_equal_log") == {}
        assert read_status(process).unreadable == {}
        cut = publish_cut(process)
        assert cut is not None
        assert cut_state(process.lake, cut).is_readable
        assert failed_checks(process, spark, "tables_equal_log") == {}
        feed_next(process)
        run_steps(process, spark)
    # Deleted rows stay.
    assert expected_balances(4).items() <= balances(bank).items()
    assert failed_checks(bank, spark, "tables_equal_log") == {}


def test_a_version_that_another_program_rolls_back_and_expires_names_its_table(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """No table is published without the others, so all wait, and the error names the snapshot and a way."""
    bank = bank_pipeline(session_lake)
    for number in (1, 2):
        feed_cycle(bank, number)
        run_steps(bank, spark)
    cut, first = newest_cut(bank.lake), list_cuts(bank.lake)[0]
    assert cut is not None
    move_branch(found_table(bank, "accounts"), MAIN, first.tables["accounts"])
    expire_version(bank, "accounts")
    feed_next(bank)
    damage = rf"table `accounts`: .*its snapshot {cut.tables['accounts']} of the newest cut.*`rebuild: true`"
    with pytest.raises(LakeDamaged, match=damage):
        run_steps(bank, spark)
    assert newest_cut(bank.lake) == cut
    rebuild_table(bank, spark, "accounts")
    assert balances(bank) == expected_balances(3)


def test_a_log_that_another_program_replaces_is_named(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Nothing is ordered again from the beginning, which may no longer be there."""
    bank = bank_pipeline(session_lake)
    feed_cycle(bank, 1)
    run_steps(bank, spark)
    log, schema = f"{bank.name}__cdc.{LOG}", bank.lake.system_table(LOG).schema()
    bank.lake.catalog.drop_table(log)
    bank.lake.catalog.create_table(log, schema)
    feed_cycle(bank, 2)
    for process in (bank, replace(bank, lake=replace(bank.lake))):
        with pytest.raises(LakeDamaged, match=rf"table `{log}`: another program has replaced it"):
            order_changes(process, spark)


def test_all_lost_tables_are_rebuilt_at_once(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """A cut names all of them, so one of them alone could not be published."""
    bank = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    for number in (1, 2):
        feed_cycle(bank, number)
        run_steps(bank, spark)
    for table in ("accounts", "transfers", HISTORY):
        drop(bank, table)
    rebuild_table(bank, spark, "transfers")
    assert balances(bank) == expected_balances(2)
    assert failed_checks(bank, spark, "tables_equal_log", "histories_sound") == {}


def test_a_table_that_is_dropped_before_main_moves_is_named(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut names it already, so the next cycle must not begin a new one."""
    bank = bank_pipeline(session_lake)
    feed_cycle(bank, 1)
    interrupt_once(monkeypatch, publication, "_move_mains", lambda: drop(bank, "accounts"))
    with pytest.raises(LakeDamaged, match="table `accounts`"):
        run_steps(bank, spark)


def test_a_lost_table_that_was_copied_is_copied_again(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """The log alone lacks the rows of its copy: left out for one cut, the table begins as a new one."""
    bank = bank_of(session_lake, 20, ACCOUNTS, TRANSFERS)

    def cycle(pipeline: Pipeline, seconds: int) -> None:
        feed(pipeline, NOW + seconds)
        copy_tables(pipeline, spark)
        run_steps(pipeline, spark)

    for second in range(5):
        cycle(bank, second)
    assert len(balances(bank)) == 20
    drop(bank, "accounts")
    damage = r"table `accounts`.*leave it out of the setting `tables` until the next cut"
    # This process has examined the table; a new one has not.
    for process in (bank, opened_again(bank)):
        with pytest.raises(LakeDamaged, match=damage):
            cycle(process, 5)
    for table in ("accounts", "transfers"):
        with pytest.raises(LakeDamaged, match=damage):
            rebuild_table(bank, spark, table)
    assert [*read_status(bank).unreadable] == ["table accounts"]
    without = replace(bank, settings=replace(bank.settings, tables=("transfers",)))
    assert read_status(without).unreadable == {}
    cycle(without, 6)
    assert read_status(without).copies == {}
    # The copy is planned at the source's present, which the log never passes.
    source_of(bank).now_micros = NOW + 8
    bank = opened_again(bank)
    for second in range(7, 12):
        cycle(bank, second)
    assert len(balances(bank)) == 20
    assert failed_checks(bank, spark, "tables_equal_log") == {}
