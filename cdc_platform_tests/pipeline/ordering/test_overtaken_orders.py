"""A run that is overtaken while it orders replaces nothing of what another run has set aside."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import ReplayMark, load_quarantine, mark_replayed
from cdc_platform.model.base.stored_names import DELETION_MARKERS, LOG, QUARANTINE, RAW
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.quarantined_records import ReplaySource
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.ordering import change_streams, log_commit
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing.expiry import READING_S, expire_system_table
from cdc_platform.pipeline.reading.read import read_generations
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, feed_cycle, opening
from cdc_platform_tests.support.crash_points.scenarios import IMPATIENT
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.datastream.files import StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import START, feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
WAIT_S: Final = 120


def feed_broken(pipeline: Pipeline, number: int) -> None:
    """Commit the raw records of a cycle: one that nobody can decode."""
    begun = START + number * SECOND
    row = opening(number, 100, begun)
    row["mods"][0]["new_values"] = "no JSON"
    feed(pipeline, begun + SECOND - 1, row)


def users_with_unordered_delete(
    spark: "SparkSession", lake: LakeSettings, path: Path
) -> tuple[StreamFolder, Pipeline]:
    """Return a pipeline that has published two users and read, but not ordered, the delete of the first."""
    folder = StreamFolder(path)
    folder.write([user(f"insert-{key}", "INSERT", key, key) for key in (1, 2)])
    pipeline = sync(make_pipeline(lake, path), spark)
    folder.write([user("delete-1", "DELETE", 3, 1)])
    read_generations(pipeline, spark)
    return folder, pipeline


def interleave(
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[], object],
    meanwhile: Callable[[], object],
    second: Callable[[], object],
) -> None:
    """Order twice at once: the second run begins when the first one has set aside rows, and ends after it."""
    is_written, continues = Event(), Event()

    def wait() -> None:
        is_written.set()
        assert continues.wait(WAIT_S)

    # The first run comes here once it has set aside its rows.
    interrupt_once(monkeypatch, log_commit, "_properties", wait)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first)
        assert is_written.wait(WAIT_S)
        meanwhile()

        def rival() -> None:
            continues.set()
            running.result()

        interrupt_once(monkeypatch, log_commit, "_set_aside", rival)
        with pytest.raises(CommitConflict):
            second()


def test_quarantined_records_of_a_run_that_another_one_overlaps_stay(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run replaces them by its own of a later cycle, which the next run would drop."""
    bank = bank_pipeline(session_lake)
    feed_broken(bank, 1)
    order_changes(bank, spark)
    feed_broken(bank, 2)
    interleave(
        monkeypatch,
        partial(order_changes, replace(bank), spark),
        partial(feed_broken, bank, 3),
        partial(order_changes, bank, spark),
    )
    order_changes(bank, spark)
    assert [record.cycle for record in load_quarantine(bank.lake)] == [1, 2, 3]


@pytest.mark.parametrize("looked_at", [RAW, QUARANTINE, LOG])
def test_quarantined_records_of_another_run_stay(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, looked_at: str
) -> None:
    """Between any two looks of this one, another run orders its cycle and the next one."""
    bank = bank_pipeline(session_lake)
    feed_broken(bank, 1)
    order_changes(bank, spark)
    feed_broken(bank, 2)
    look = Lake.system_table

    def rival() -> None:
        order_changes(bank, spark)
        feed_broken(bank, 3)
        order_changes(bank, spark)

    def interrupted(lake: Lake, name: str) -> Table:
        if name == looked_at:
            monkeypatch.setattr(Lake, "system_table", look)
            rival()
        return look(lake, name)

    monkeypatch.setattr(Lake, "system_table", interrupted)
    with suppress(CommitConflict):
        order_changes(bank, spark)
    feed_broken(bank, 4)
    order_changes(bank, spark)
    assert [record.cycle for record in load_quarantine(bank.lake)] == [1, 2, 3, 4]


def test_deletion_markers_of_another_run_stay(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them, an older event that arrives later would bring a deleted row back."""
    folder, pipeline = users_with_unordered_delete(spark, session_lake, tmp_path)

    def rival() -> None:
        other = open_pipeline(pipeline.settings)
        order_changes(other, spark)
        folder.write([user("delete-2", "DELETE", 4, 2)])
        run_cycle(other, spark)

    interrupt_once(monkeypatch, log_commit, "_set_aside", rival)
    with pytest.raises(CommitConflict):
        order_changes(pipeline, spark)
    assert pipeline.lake.system_table(DELETION_MARKERS).scan().count() == 2


@pytest.mark.parametrize("replays", [0, 12])
def test_the_version_of_quarantine_that_a_delayed_run_names_stays(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, replays: int
) -> None:
    """The log names it as soon as the run commits, and the next one compares it with the newest version."""
    bank = bank_pipeline(session_lake)
    feed_broken(bank, 1)
    order_changes(bank, spark)
    feed_cycle(bank, 2)
    other = replace(bank, settings=replace(bank.settings, maintenance=IMPATIENT))
    later_micros = clock_micros() + 2 * READING_S * SECOND

    def rival() -> None:
        (record,) = load_quarantine(bank.lake)
        for number in range(replays):
            mark = ReplayMark(number, record.cycle, ReplaySource.RECORDS)
            mark_replayed(bank.lake, {record.identity: mark})
        expire_system_table(other, spark, QUARANTINE, later_micros, thorough=True)

    interrupt_once(monkeypatch, change_streams, "measure_rows", rival)
    order_changes(bank, spark)
    feed_broken(bank, 3)
    order_changes(bank, spark)
    # The replayed record is still one that nobody can decode.
    open_cycles = [record.cycle for record in load_quarantine(bank.lake)]
    assert open_cycles == [3 if replays else 1, 3]
