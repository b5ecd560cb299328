"""Reading goes on within a tick where children hold the watermark back."""

from typing import TYPE_CHECKING, cast

import pytest

from cdc_platform.model.lineage import ChildAnnouncement, Lineage, advance, begin
from cdc_platform.model.slices import SliceOutcome, SliceReport
from cdc_platform.pipeline import read
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.read import ReadOutcome, read_generations, read_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START, SECOND = 1_800_000_000_000_000, 1_000_000


class Generations:
    """Partitions that end every ten seconds, all at once, as the rounds of a tick see them."""

    def __init__(self, clock_micros: int) -> None:
        self.clock_micros = clock_micros
        self.lineage = begin(START)

    def trace(self, _pipeline: object) -> Lineage:
        """Return the lineage after the rounds so far."""
        return self.lineage

    def read(self, *_: object, end_limit_micros: int | None = None, **_named: object) -> ReadOutcome:
        """Read the only live partition until it ends, or until the clock."""
        end = min(self.clock_micros, end_limit_micros or self.clock_micros) - 1
        found = next(part for part in self.lineage.partitions.values() if part.is_live)
        tick, ends = self.lineage.tick + 1, found.start_micros + 10 * SECOND
        is_over = ends <= end
        outcome = SliceOutcome.FINISHED if is_over else SliceOutcome.COMPLETE
        report = SliceReport(found.token, found.position_micros, ends - 1 if is_over else end, outcome)
        children = [ChildAnnouncement(tick, ends, f"token-{tick}", (found.token,))] if is_over else []
        self.lineage = advance(self.lineage, tick, [report], children)
        return ReadOutcome(tick, (report,), {}, True, self.clock_micros, end)


def test_a_tick_follows_generations_that_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tick reaches the clock although all partitions end in each of its rounds."""
    generations = Generations(START + 35 * SECOND)
    monkeypatch.setattr(read, "read_slices", generations.read)
    monkeypatch.setattr(read, "trace_lineage", generations.trace)
    outcome = read_generations(cast("Pipeline", None), cast("SparkSession", None))
    assert [part.outcome for part in outcome.slices] == [SliceOutcome.FINISHED] * 3 + [SliceOutcome.COMPLETE]
    assert generations.clock_micros - 2 * SECOND < outcome.slices[-1].end_inclusive_micros


def test_children_are_read_with_all_live_partitions_but_not_with_chosen_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks for everything gets a whole tick's reading; who names some partitions gets these alone."""
    generations = Generations(START + 35 * SECOND)
    monkeypatch.setattr(read, "read_slices", generations.read)
    monkeypatch.setattr(read, "trace_lineage", generations.trace)
    pipeline, spark = cast("Pipeline", None), cast("SparkSession", None)
    assert len(read_partitions(pipeline, spark, ["another one"]).slices) == 1
    live = [part.key for part in generations.lineage.partitions.values() if part.is_live]
    assert len(read_partitions(pipeline, spark, live).slices) == 3
