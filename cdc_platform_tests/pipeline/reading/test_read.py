"""Reading continues within a cycle where children hold the watermark back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from cdc_platform.errors import PartitionStuck
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.control import ControlRows
from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, advance, begin
from cdc_platform.model.stream.read_windows import ReadPlan, ReadWindow, WindowOutcome, WindowReport
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.on_demand.status import read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading import read
from cdc_platform.pipeline.reading.read import (
    ReadOutcome,
    max_tasks,
    read_generations,
    read_partitions,
    read_windows,
)
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import make_pipeline, source_of, window_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START, SECOND = 1_800_000_000_000_000, 1_000_000


class Generations:
    """Partitions that end every ten seconds, all at once, as the rounds of a cycle see them."""

    def __init__(self, clock_micros: int) -> None:
        self.clock_micros = clock_micros
        self.lineage = begin(START)

    def trace(self, _pipeline: object) -> Lineage:
        """Return the lineage after the rounds so far."""
        return self.lineage

    def read(self, *_: object, end_limit_micros: int | None = None, **_named: object) -> ReadOutcome:
        """Read the only live partition until it ends, or until the clock."""
        end = min(self.clock_micros, end_limit_micros or self.clock_micros) - 1
        partition = next(part for part in self.lineage.partitions.values() if part.is_live)
        cycle, ends = self.lineage.cycle + 1, partition.start_micros + 10 * SECOND
        is_over = ends <= end
        outcome = WindowOutcome.FINISHED if is_over else WindowOutcome.COMPLETE
        report = WindowReport(
            partition.token, partition.position_micros, ends - 1 if is_over else end, outcome
        )
        children = [ChildAnnouncement(cycle, ends, f"token-{cycle}", (partition.token,))] if is_over else []
        self.lineage = advance(self.lineage, cycle, [report], children)
        return ReadOutcome(cycle, (report,), {}, True, self.clock_micros, end)


def test_a_cycle_follows_generations_that_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cycle reaches the clock although all partitions end in each of its rounds."""
    generations = Generations(START + 35 * SECOND)
    monkeypatch.setattr(read, "read_windows", generations.read)
    monkeypatch.setattr(read, "trace_lineage", generations.trace)
    outcome = read_generations(cast("Pipeline", None), cast("SparkSession", None))
    assert [part.outcome for part in outcome.windows] == [WindowOutcome.FINISHED] * 3 + [
        WindowOutcome.COMPLETE
    ]
    assert generations.clock_micros - 2 * SECOND < outcome.windows[-1].end_inclusive_micros


def test_children_are_read_with_all_live_partitions_but_not_with_chosen_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request for all partitions reads a whole cycle; a request for some reads these alone."""
    generations = Generations(START + 35 * SECOND)
    monkeypatch.setattr(read, "read_windows", generations.read)
    monkeypatch.setattr(read, "trace_lineage", generations.trace)
    pipeline, spark = cast("Pipeline", None), cast("SparkSession", None)
    assert len(read_partitions(pipeline, spark, ["another one"]).windows) == 1
    live = [part.key for part in generations.lineage.partitions.values() if part.is_live]
    assert len(read_partitions(pipeline, spark, live).windows) == 3


@pytest.mark.parametrize(
    ("windows", "records", "follows", "tasks"),
    [
        (6, 100, True, 1),  # so that all of them can be followed, whatever merges
        (9, 100, True, 2),
        (99, 100, True, 4),
        (6, 600_000, True, 4),  # a backlog is read in parallel
        (6, 100, False, 4),
    ],
)
def test_few_records_are_read_by_few_tasks(
    monkeypatch: pytest.MonkeyPatch, windows: int, records: int, follows: bool, tasks: int
) -> None:
    """The cycle before says how many records come in a second; each has a price, and so has a task."""
    report = WindowReport("token", START, START + SECOND, WindowOutcome.COMPLETE)
    control = ControlRows((report,), (), {RecordKind.DATA_CHANGE: records // 10})
    monkeypatch.setattr(read, "read_control", lambda *_: control)
    monkeypatch.setattr(read, "local_cores", lambda _: 4)
    chunks = tuple(ReadWindow(f"token-{number}", START, START + 10 * SECOND) for number in range(windows))
    plan = ReadPlan(chunks, finished_parents=() if follows else None)
    source = SpannerSettings("project", "instance", "database", "stream")
    pipeline = open_pipeline(PipelineSettings("bank", source, LakeSettings("unused")))
    assert tasks == max_tasks(pipeline, cast("SparkSession", None), 1, plan)


@pytest.mark.parametrize(("duration_s", "tasks"), [(10, 1), (3_600, 4)])
def test_a_long_plan_of_unknown_rate_is_read_in_parallel(
    monkeypatch: pytest.MonkeyPatch, duration_s: int, tasks: int
) -> None:
    """A cycle that read no window does not foretell an hour of changes."""
    monkeypatch.setattr(read, "read_control", lambda *_: ControlRows((), (), {}))
    monkeypatch.setattr(read, "local_cores", lambda _: 4)
    window = ReadWindow("token", START, START + duration_s * SECOND)
    plan = ReadPlan(tuple(replace(window, token=f"token-{n}") for n in range(6)), finished_parents=())
    source = SpannerSettings("project", "instance", "database", "stream")
    pipeline = open_pipeline(PipelineSettings("bank", source, LakeSettings("unused")))
    assert tasks == max_tasks(pipeline, cast("SparkSession", None), 1, plan)


def test_a_cycle_whose_reads_fall_silent_under_way_continues(tmp_path: Path) -> None:
    """A pipeline that catches up commits what it has and reads on; only one that does not move stops."""
    pipeline = make_pipeline(LakeSettings(str(tmp_path)), first_micros=START)
    source, spark = source_of(pipeline), cast("SparkSession", None)
    source.now_micros = START + 9 * SECOND

    def silent_after(seconds: int) -> Callable[..., list[RawRow]]:
        def answer(cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
            chunk = windows[0]
            read_to = chunk.start_exclusive_micros + seconds * SECOND
            row = window_row(replace(chunk, end_inclusive_micros=read_to), WindowOutcome.INTERRUPTED)
            return [
                {
                    **row,
                    "cycle": cycle,
                    "read_window": {**row["read_window"], "error": "PartitionStuck: it is silent"},
                }
            ]

        return answer

    source.answer = silent_after(4)
    outcome = read_windows(pipeline, spark)
    assert [report.end_inclusive_micros for report in outcome.windows] == [START - 1 + 4 * SECOND]
    assert read_status(pipeline).stuck_partitions == ()
    source.answer = silent_after(0)
    with pytest.raises(PartitionStuck, match="it is silent"):
        read_windows(pipeline, spark)
    assert len(read_status(pipeline).stuck_partitions) == 1
