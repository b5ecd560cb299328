"""Maintenance makes the lake smaller and changes nothing that it says."""

from collections.abc import Iterable
from dataclasses import replace
from operator import le
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import fact, head, read_mark
from cdc_platform.lake.commits.maintenance import compact_small_files
from cdc_platform.lake.state.cut_states import cut_states
from cdc_platform.model.base.stored_names import CUT, LOG, RAW
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_settings import MaintenanceSettings
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import expiry, maintain
from cdc_platform.pipeline.publishing.maintain import (
    MaintenanceOutcome,
    TableTask,
    choose_tasks,
    maintain_lake,
)
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    bank_pipeline,
    closing,
    expected_balances,
    feed_cycle,
    feed_next,
)
from cdc_platform_tests.support.pipelines import START, feed, found_table, log_rows, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_maintenance(pipeline: Pipeline, **changes: float) -> Pipeline:
    """Return the pipeline with other settings of maintenance."""
    maintenance = MaintenanceSettings(**changes)  # type: ignore[arg-type]  # whole numbers stay whole
    return replace(pipeline, settings=replace(pipeline.settings, maintenance=maintenance))


def files_of(pipeline: Pipeline, table: str) -> int:
    """Return how many data files a table's newest snapshot has."""
    return len(list(found_table(pipeline, table).scan().plan_files()))


def metadata_files_of(table: Table) -> list[Path]:
    """Return the metadata files of a table that are there."""
    newest = Path(unquote(table.metadata_location.removeprefix("file://")))
    return [*newest.parent.glob("*.metadata.json")]


def found_snapshot(pipeline: Pipeline, table: str) -> Snapshot:
    """Return the snapshot that readers of a table see."""
    snapshot = head(found_table(pipeline, table))
    assert snapshot is not None
    return snapshot


@pytest.fixture(scope="module")
def bank(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """The bank after two cycles; each test continues from the state of the previous one."""
    pipeline = bank_pipeline(session_lake)
    run_until(pipeline, spark, 2)
    return pipeline


def run_until(pipeline: Pipeline, spark: "SparkSession", cycle: int) -> None:
    """Run the bank's cycles up to one."""
    while read_mark(pipeline.lake.system_table(RAW)).cycle < cycle:
        feed_next(pipeline)
        run_steps(pipeline, spark)


@pytest.mark.integration
def test_compaction_keeps_content_progress_and_cuts(spark: "SparkSession", bank: Pipeline) -> None:
    """Small files become one, every cut reads as before, and the next cycle continues as if nothing was.

    Compaction does not come between a merge and its cut.
    """
    run_until(bank, spark, 5)
    number = feed_next(bank)
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)
    main = head(found_table(bank, "accounts"))
    maintain_lake(bank, spark, thorough=True)
    assert main == head(found_table(bank, "accounts"))
    run_steps(bank, spark)
    log, marks = log_rows(bank), [read_mark(bank.lake.system_table(name)) for name in (RAW, LOG)]
    before = files_of(bank, "transfers")
    outcome = maintain_lake(bank, spark, thorough=True)
    assert before > files_of(bank, "transfers")
    assert outcome.minor_files > 0
    assert fact(found_snapshot(bank, "accounts"), "total-position-deletes") == "0"
    assert log == log_rows(bank)
    assert marks == [read_mark(bank.lake.system_table(name)) for name in (RAW, LOG)]
    cuts = [state.cut for state in cut_states(bank.lake) if state.is_readable]
    assert cuts
    for cut in cuts:
        assert expected_balances(cut.cycle) == balances(bank, cut.tables["accounts"])
    assert expected_balances(number) == balances(bank)
    run_until(bank, spark, number + 1)
    assert expected_balances(number + 1) == balances(bank)


@pytest.mark.integration
def test_files_with_deleted_rows_are_rewritten_however_few(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A major compaction takes files that are too few for a minor one."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    feed(pipeline, START + 3 * SECOND, closing(3, START + 2 * SECOND))
    run_steps(pipeline, spark)
    assert fact(found_snapshot(pipeline, "accounts"), "total-position-deletes") == "1"
    assert compact_small_files(spark, found_table(pipeline, "accounts"), small_file_bytes=2**20) == 0
    assert maintain_lake(pipeline, spark, thorough=True).major_files == 1
    assert fact(found_snapshot(pipeline, "accounts"), "total-position-deletes") == "0"
    assert balances(pipeline) == {1: 100, 2: 100}


@pytest.mark.integration
def test_expiry_forgets_old_cuts_and_no_progress(spark: "SparkSession", bank: Pipeline) -> None:
    """With the shortest retention, cycles continue after expiry and nothing is read or applied twice."""
    pipeline = with_maintenance(bank, keep_every_cut_s=0, keep_snapshots=10)
    run_until(pipeline, spark, 13)
    assert maintain_lake(pipeline, spark, thorough=True).expired_files > 0
    states = cut_states(pipeline.lake)
    # Of each minute the first one stays.
    assert states[0].is_readable
    assert not all(state.is_readable for state in states)
    assert expected_balances(1) == balances(pipeline, states[0].cut.tables["accounts"])
    shortest = with_maintenance(pipeline, keep_every_cut_s=0, keep_snapshots_s=0, keep_snapshots=10)
    assert maintain_lake(shortest, spark, thorough=True).expired_files > 0
    assert not cut_states(pipeline.lake)[0].is_readable
    number = feed_next(shortest)
    run_steps(shortest, spark)
    assert expected_balances(number) == balances(shortest)
    assert number - 1 == len(rows_of(shortest, "transfers"))
    records = [(row["record_id"], row["mod_ordinal"]) for row in log_rows(shortest)]
    assert sorted(set(records)) == sorted(records)


@pytest.mark.integration
def test_maintenance_deletes_old_metadata_files(
    spark: "SparkSession", bank: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of merged tables and of the platform's own only those stay that the log names, or that are young.

    That includes the files that this maintenance itself replaces.
    """
    accounts, cuts = found_table(bank, "accounts"), bank.lake.system_table(CUT)
    for table in (accounts, cuts):
        with table.transaction() as transaction:
            transaction.set_properties({"write.metadata.previous-versions-max": "2"})
    before = [len(metadata_files_of(table)) for table in (accounts, cuts)]
    maintain_lake(bank, spark, thorough=True)
    assert all(map(le, before, [len(metadata_files_of(table)) for table in (accounts, cuts)]))
    content = balances(bank)
    monkeypatch.setattr(expiry, "SHORT_LIFE_S", 0)
    maintain_lake(with_maintenance(bank, keep_metadata_s=0), spark, thorough=True)
    assert [len(metadata_files_of(table)) for table in (accounts, cuts)] == [3, 3]
    assert content == balances(bank)


@pytest.mark.parametrize(
    "changes",
    [
        {"minor_every_cycles": 0},  # never due
        {"expire_every_cycles": 0},
        {"keep_snapshots": 1},  # the mark of the newest cycle could expire
        {"keep_orphans_s": 3600},  # a commit under way could lose its files
        {"keep_snapshots_s": -1},
        {"small_file_bytes": -1},
        {"major_deleted_fraction": 0},  # every file would be rewritten each time
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, int]) -> None:
    """Progress is kept in snapshots, so some of them always stay; so do young files."""
    with pytest.raises(SettingError, match="maintenance"):
        MaintenanceSettings(**changes)


@pytest.mark.integration
def test_maintenance_is_due_after_some_cycles(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cycles since the last compaction decide, and no cut is read while no snapshot may expire."""
    pipeline = with_maintenance(bank_pipeline(session_lake), minor_every_cycles=3)
    rewritten, reads = [], list[object]()
    monkeypatch.setattr(maintain, "find_kept_cuts", lambda *words: reads.append(words))
    for number in (1, 2, 3):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
        rewritten.append(maintain_lake(pipeline, spark).minor_files)
    assert rewritten[:2] == [0, 0]
    assert rewritten[2] > 0
    assert maintain_lake(pipeline, spark) == MaintenanceOutcome()
    assert reads == []


@pytest.mark.integration
def test_cycles_that_leave_nothing_to_compact_are_not_counted(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all files are large no table is urgent: else the same one would be tried after every cycle."""
    tried: list[object] = []
    monkeypatch.setattr(maintain, "compact_small_files", lambda *words, **_where: tried.append(words))
    pipeline = with_maintenance(
        bank_pipeline(session_lake), minor_every_cycles=2, small_file_bytes=1, major_deleted_fraction=2
    )
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, spark)
    maintain_lake(pipeline, spark)
    assert tried == []


def make_chores(urgencies: Iterable[float]) -> list[TableTask]:
    """Return maintenance tasks of tables named by number, which do nothing."""
    return [
        TableTask(str(number), urgency, lambda _: MaintenanceOutcome())
        for number, urgency in enumerate(urgencies)
    ]


@pytest.mark.parametrize(
    ("chosen", "urgencies"),
    [
        ([], [0.2, 0.9]),
        (["2"], [0.2, 1, 1.5, 0, 1.2, 0.9]),
        (["3", "1"], [1, 1.2, 1, 1.5, 1, 0, 1]),  # seven tables need two in each of six cycles
    ],
)
def test_a_cycle_takes_the_most_urgent_chores(chosen: list[str], urgencies: list[float]) -> None:
    """Of what is due one is done at a time, as long as all have their turn that way."""
    tasks = choose_tasks(MaintenanceSettings(minor_every_cycles=6), make_chores(urgencies))
    assert chosen == [task.table for task in tasks]


@given(tables=st.integers(1, 60), every=st.integers(1, 20))
def test_no_table_waits_for_twice_its_time(tables: int, every: int) -> None:
    """For any number of tables, each is maintained before it is due for the second time."""
    settings = MaintenanceSettings(minor_every_cycles=every)
    waited = [0] * tables
    for _ in range(4 * every):
        waited = [cycles + 1 for cycles in waited]
        for task in choose_tasks(settings, make_chores(cycles / every for cycles in waited)):
            waited[int(task.table)] = 0
        assert max(waited) < 2 * every
