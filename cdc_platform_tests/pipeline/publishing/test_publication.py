"""Publishing while other processes publish: what a cut names, and moving `main` of tables there."""

from contextlib import suppress
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict, LakeDamaged
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import BRANCH, MAIN, ancestors_of, head
from cdc_platform.lake.state.cuts import Cut, append_cut, list_cuts
from cdc_platform.model.base.stored_names import CUT, CYCLE
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publication
from cdc_platform_tests.pipeline.bank import bank_pipeline, feed_cycle, feed_next
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def test_a_table_that_is_rebuilt_meanwhile_stays_so(tmp_path: Path) -> None:
    """A process that is delayed before it moves `main` does not undo what another has published since.

    What is rebuilt from an older cut has the cycle of what it replaces, and is not built on it.
    """
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    table = lake.catalog.create_table("p.t", ROWS.schema)
    table.append(ROWS, snapshot_properties={CYCLE: "1"})
    base, cuts = head(table), list[Cut]()
    assert base is not None
    for number in (1, 2):
        move_branch(table.refresh(), BRANCH, base.snapshot_id)
        table.refresh().append(ROWS, snapshot_properties={CYCLE: "2"}, branch=BRANCH)
        version = head(table.refresh(), BRANCH)
        assert version is not None
        cuts.append(Cut(number, 5, 2, {"t": version.snapshot_id}, 6))
        append_cut(lake, cuts[-1])
    delayed, rebuilt = (cut.tables["t"] for cut in cuts)
    pipeline = cast("Pipeline", SimpleNamespace(lake=lake, name="p"))
    for former in (rebuilt, delayed):
        move_branch(table.refresh(), MAIN, former)
        for cut in reversed(cuts):
            publication._move_mains(pipeline, cut, ["t"], lake.table)  # noqa: SLF001  between two steps
            newest = head(table.refresh())
            assert newest is not None
            assert rebuilt == newest.snapshot_id


def test_tables_move_together_and_one_that_cannot_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see tables of two cuts as briefly as the catalog allows; the error is that of the first one."""
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    pipeline = cast("Pipeline", SimpleNamespace(lake=lake, name="p"))
    names = ["a", "b", "c"]
    for name in names:
        lake.catalog.create_table(f"p.{name}", ROWS.schema)
    met, moved = Barrier(len(names), timeout=30), set[str]()

    def advance(table: Table, snapshot_id: int, _is_newest: object) -> None:
        met.wait()
        if snapshot_id == 1:
            raise CommitConflict(table.name()[-1])
        moved.add(table.name()[-1])

    monkeypatch.setattr(publication, "advance_main", advance)
    cut = Cut(1, 5, 2, dict(zip(names, (1, 2, 3), strict=True)), 6)
    with pytest.raises(CommitConflict, match="a"):
        publication._move_mains(pipeline, cut, names, lake.table)  # noqa: SLF001  without a whole cycle
    assert {"b", "c"} == moved


@pytest.mark.integration
def test_cuts_that_alone_are_older_are_damage(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """No cycle would ever succeed: the tables are ahead of every cut. Restored, all goes on."""
    bank = bank_pipeline(session_lake)
    for _ in range(3):
        feed_next(bank)
        run_steps(bank, spark)
    cuts = bank.lake.system_table(CUT)
    newest, former = head(cuts), ancestors_of(cuts, head(cuts))
    assert newest is not None
    move_branch(cuts, MAIN, [*former][1].snapshot_id)
    feed_next(bank)
    with pytest.raises(LakeDamaged, match=r"table `accounts`: .*__cdc\.cuts` alone was restored"):
        run_steps(bank, spark)
    move_branch(cuts.refresh(), MAIN, newest.snapshot_id)
    run_steps(bank, spark)
    assert failed_checks(bank, spark, "watermark_monotone", "tables_equal_log") == {}


@pytest.mark.integration
def test_no_cut_ends_before_the_cut_that_another_run_publishes_meanwhile(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks of a run: its older position would be published with the newer tables."""
    bank = bank_pipeline(session_lake)
    feed_cycle(bank, 1)
    run_steps(bank, spark)

    def rival() -> None:
        publication.publish_cut(bank)
        feed_next(bank)
        run_steps(bank, spark)

    looks = ("newest_cut", "read_mark", "find_unchanged_in_lake", "append_cut")
    for number, look in enumerate(looks, start=1):
        feed_next(bank)
        order_changes(bank, spark)
        merge_tables(bank, spark, bank.tables)
        interrupt_once(monkeypatch, publication, look, rival)
        with suppress(CommitConflict):
            publication.publish_cut(bank)
        assert [*range(1, 2 * number + 2)] == [cut.cycle for cut in list_cuts(bank.lake)], look
    feed_next(bank)
    run_steps(bank, spark)
    assert [*range(1, 2 * len(looks) + 3)] == [cut.cycle for cut in list_cuts(bank.lake)]
    assert failed_checks(bank, spark, "watermark_monotone", "tables_equal_log") == {}
