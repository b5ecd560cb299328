"""The data source in Spark, on the emulator."""

import importlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.stream.generations import finished_parents
from cdc_platform.model.stream.lineage import Lineage, begin, watermark_micros
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest, ReadWindow, WindowOutcome
from cdc_platform.model.stream.window_plans import plan_windows
from cdc_platform.pipeline.checks.lineage_checks import find_violations
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform.sources.spanner.stream.reader import deal_out
from cdc_platform.sources.workers import prepare_worker
from cdc_platform_tests.emulator_fixtures import make_bank
from cdc_platform_tests.servers.bank import write_transfers
from cdc_platform_tests.sources.spanner.cycles import apply_cycle

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def read(
    spark: "SparkSession", source: SpannerSource, lineage: Lineage, *, follows: bool = False, tasks: int = 3
) -> "list[Row]":
    """Return the rows of the next cycle; where it follows, with those of children of partitions that end."""
    windows = plan_windows(lineage, ReadRequest(source.clock_micros() - 1))
    parents = finished_parents(lineage) if follows else None
    plan = ReadPlan(windows, finished_parents=parents)
    return source.read(spark, lineage.cycle + 1, plan, tasks).through(iter, RAW_CHANGE_RECORDS).collect()


@pytest.mark.integration
def test_every_transaction_is_read_whole_and_once(spark: "SparkSession", emulator: str) -> None:
    """From the query without a token on, through partitions that end, each record is read once."""
    stream = make_bank(emulator, "reader-bank")
    source = SpannerSource(stream.spanner)
    start_micros = source.start_micros()
    lineage = begin(start_micros)
    rows: list[Row] = []
    written = 0
    for number in range(6):
        written += write_transfers(stream.bank, seconds=0.7, rate=200, seed=written).transactions
        actual = read(spark, source, lineage, follows=number % 2 == 1)
        lineage = apply_cycle(lineage, actual)
        rows += actual
    end_micros = source.clock_micros()
    while (watermark_micros(lineage) or 0) < end_micros:
        actual = read(spark, source, lineage)
        lineage = apply_cycle(lineage, actual)
        rows += actual

    data = [row for row in rows if row.kind == "data_change"]
    counts = Counter(row.server_transaction_id for row in data)
    assert counts == {row.server_transaction_id: row.number_of_records_in_transaction for row in data}
    assert len(counts) == written
    assert len({(row.server_transaction_id, row.record_sequence) for row in data}) == len(data)
    assert {row.mod_type for row in data} >= {"INSERT", "UPDATE"}
    assert find_violations(lineage) == []
    outcomes = {row.read_window.outcome for row in rows if row.kind == "read_window"}
    assert WindowOutcome.FINISHED.value in outcomes

    # The same once more, from the beginning on: one task follows all generations in one read.
    again = read(spark, source, begin(start_micros), follows=True, tasks=1)
    assert counts == Counter(row.server_transaction_id for row in again if row.kind == "data_change")
    followed = apply_cycle(begin(start_micros), again)
    assert (watermark_micros(followed) or 0) >= end_micros
    assert find_violations(followed) == []


@pytest.mark.parametrize(
    ("windows", "tasks", "sizes"), [(1000, 8, [125] * 8), (10, 4, [3, 3, 2, 2]), (2, 8, [1, 1]), (0, 8, [])]
)
def test_windows_are_dealt_out_evenly(windows: int, tasks: int, sizes: list[int]) -> None:
    """No task gets more than one window more than another, nor all of those that reach furthest back."""
    windows_given = [ReadWindow(str(number), number, windows) for number in range(windows)]
    dealt = deal_out(windows_given, tasks)

    assert [len(task) for task in dealt] == sizes
    assert sorted(windows_given, key=str) == sorted((window for task in dealt for window in task), key=str)
    assert [task[0] for task in dealt] == windows_given[: len(dealt)]


def test_archives_of_the_import_path_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not look into an archive again, although Spark has all paths read again."""
    archive = tmp_path / "library.jar"
    with ZipFile(archive, "w") as file:
        file.writestr("module_of_an_archive.py", "")
    monkeypatch.syspath_prepend(str(archive))
    assert find_spec("module_of_an_archive") is not None
    prepare_worker()
    with ZipFile(archive, "a") as file:
        file.writestr("module_added_later.py", "")
    importlib.invalidate_caches()
    assert find_spec("module_added_later") is None
