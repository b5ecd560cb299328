"""Small cycles are read by the process that runs them, and come to the same as those that Spark reads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.progress import Progress, Step
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading import local_read
from cdc_platform.pipeline.reading.read import read_windows
from cdc_platform.spark.log.faults import VALUES_FAULT
from cdc_platform_tests.pipeline.bank import balances, bank_pipeline, busy, wait
from cdc_platform_tests.support.datastream.files import StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import log_rows, quarantined_rows, run_steps, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)


def raw_rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the raw records, in the order of their cycles."""
    rows = pipeline.lake.system_table(RAW).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["cycle"], row["kind"], repr(row["mods"])))


def test_a_short_cycle_is_read_without_spark(tmp_path: Any) -> None:
    """Reading a second takes no session, and commits the records with the reports and the mark."""
    pipeline = busy(bank_pipeline(LakeSettings(str(tmp_path))))
    wait(pipeline, 1)
    outcome = read_windows(pipeline, NO_SPARK)
    assert outcome.is_local
    assert [row["kind"] for row in raw_rows(pipeline)] == ["data_change", "read_window"]
    assert read_mark(pipeline.lake.system_table(RAW)).cycle == 1


class KeptProgress(Progress):
    """Progress that keeps its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Step] = []

    @contextmanager
    def step(self, *arguments: Any, **options: Any) -> Iterator[Step]:
        """Yield a step that runs within the context."""
        with super().step(*arguments, **options) as begun:
            self.kept.append(begun)
            yield begun


def test_files_that_are_read_again_have_a_total(tmp_path: Path) -> None:
    """Nobody knows the records of a file before they are read, so the bar counts the files."""
    progress, folder = KeptProgress(), tmp_path / "files"
    pipeline = replace(make_pipeline(LakeSettings(str(tmp_path / "lake")), folder), progress=progress)
    for number in range(3):
        StreamFolder(folder).put(folder / f"shop_visits/2027/01/15/08/00/{number}.jsonl", b'{"uuid": "x", \n')
    assert read_windows(pipeline, NO_SPARK).is_local
    assert read_windows(pipeline, NO_SPARK).is_local
    [*_, reading] = [step for step in progress.kept if step.unit]
    assert (reading.name, reading.unit, reading.done, reading.total) == ("read", "files", 3, 3)


@pytest.mark.integration
def test_both_ways_of_reading_come_to_the_same(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """Raw records and tables do not show who has read a cycle; cycles of both kinds may follow each other."""
    here = busy(bank_pipeline(session_lake), accounts=3)
    by_spark = busy(bank_pipeline(session_lake), accounts=3)
    by_spark = replace(by_spark, settings=replace(by_spark.settings, local_read_s=0))
    for seconds in (1, 3600):
        for pipeline in (here, by_spark):
            wait(pipeline, seconds)
            is_short = seconds < 60 and pipeline is here
            assert is_short == read_windows(pipeline, spark).is_local
            run_steps(pipeline, spark)
    assert raw_rows(by_spark) == raw_rows(here)
    assert len(balances(here)) == 6
    assert balances(by_spark) == balances(here)


@pytest.mark.integration
def test_a_cycle_with_an_unsound_record_is_as_spark_has_it(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Unusable events go to quarantine, the rest to log and tables, with either reader."""
    for max_s in (0.0, 15.0):
        pipeline = busy(bank_pipeline(session_lake), accounts=3, broken=1)
        pipeline = replace(pipeline, settings=replace(pipeline.settings, local_read_s=max_s))
        wait(pipeline, 1)
        read_windows(pipeline, spark)
        run_steps(pipeline, spark)
        assert [row["reason"] for row in quarantined_rows(pipeline)] == [VALUES_FAULT]
        assert len(log_rows(pipeline)) == 2
        assert len(balances(pipeline)) == 2


@pytest.mark.integration
def test_what_turns_out_to_be_large_is_left_to_spark(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short cycle of many bytes is read again by Spark, and none of its records is committed twice."""
    pipeline = busy(bank_pipeline(session_lake), accounts=5)
    monkeypatch.setattr(local_read, "MAX_BYTES", 10)
    wait(pipeline, 1)
    assert not read_windows(pipeline, spark).is_local
    assert len(raw_rows(pipeline)) == 6


@pytest.mark.integration
def test_after_a_large_cycle_the_next_one_is_not_tried_locally(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While cycles are large the source is asked once for each; after a small one it is tried again."""
    pipeline = busy(bank_pipeline(session_lake), accounts=5)
    monkeypatch.setattr(local_read, "MAX_RECORDS", 5)
    outcomes = []
    for accounts in (5, 1, 1):
        busy(pipeline, accounts)
        wait(pipeline, 1)
        outcomes.append(read_windows(pipeline, spark).is_local)
    assert outcomes == [True, False, True]


def test_a_read_that_breaks_off_commits_nothing(tmp_path: Any) -> None:
    """An error of the source reaches the caller, and the next read begins at the same place."""
    pipeline = busy(bank_pipeline(LakeSettings(str(tmp_path))))
    answer = source_of(pipeline).answer

    def broken(cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
        source_of(pipeline).answer = answer
        raise RuntimeError(f"cycle {cycle} of {len(windows)} windows")

    source_of(pipeline).answer = broken
    wait(pipeline, 1)
    with pytest.raises(RuntimeError, match="cycle 1 of 1 windows"):
        read_windows(pipeline, NO_SPARK)
    assert read_windows(pipeline, NO_SPARK).is_local
    assert len(raw_rows(pipeline)) == 2
