"""A run that is overtaken while it orders replaces nothing of what another run has set aside."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import Table

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import DELETION_MARKERS, LOG, QUARANTINED, RAW, Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import load_quarantined
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.ordering import log_commit
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.reading.read import read_generations
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, opening
from cdc_platform_tests.support.cycles import sync
from cdc_platform_tests.support.datastream.files import StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import START, feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def feed_broken(pipeline: Pipeline, number: int) -> None:
    """Commit the raw records of a cycle: one that nobody can decode."""
    begun = START + number * SECOND
    row = opening(number, 100, begun)
    row["mods"][0]["new_values"] = "no JSON"
    feed(pipeline, begun + SECOND - 1, row)


@pytest.mark.parametrize("looked_at", [RAW, QUARANTINED, LOG])
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
    assert [record.cycle for record in load_quarantined(bank.lake)] == [1, 2, 3, 4]


def test_deletion_markers_of_another_run_stay(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them, an older event that arrives later would bring a deleted row back."""
    folder = StreamFolder(tmp_path)
    folder.write([user(f"insert-{key}", "INSERT", key, key) for key in (1, 2)])
    pipeline = sync(make_pipeline(session_lake, tmp_path), spark)
    folder.write([user("delete-1", "DELETE", 3, 1)])
    read_generations(pipeline, spark)

    def rival() -> None:
        other = open_pipeline(pipeline.settings)
        order_changes(other, spark)
        folder.write([user("delete-2", "DELETE", 4, 2)])
        run_cycle(other, spark)

    interrupt_once(monkeypatch, log_commit, "_set_aside", rival)
    with pytest.raises(CommitConflict):
        order_changes(pipeline, spark)
    assert pipeline.lake.system_table(DELETION_MARKERS).scan().count() == 2
