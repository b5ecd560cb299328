"""A whole cycle: copy, read, order, merge, publish, and now and then maintain."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.model.base.stored_names import LOG, RAW
from cdc_platform.pipeline.checks.running_checks import CheckRunner
from cdc_platform.pipeline.copying.copy import NO_COPY, CopyOutcome, copy_tables
from cdc_platform.pipeline.histories.history_build import extend_histories
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.opened.pipeline_step import pipeline_step
from cdc_platform.pipeline.ordering.order import OrderOutcome, order_changes
from cdc_platform.pipeline.publishing.maintain import NO_MAINTENANCE, MaintenanceOutcome, maintain_lake
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.reading.read import ReadOutcome, read_generations


@dataclass(frozen=True)
class CycleOutcome:
    """Result of one cycle, with the seconds of each step."""

    read: ReadOutcome
    order: OrderOutcome
    merges: tuple[MergeOutcome, ...]
    cut: Cut | None
    seconds: Mapping[str, float]
    copy: CopyOutcome = NO_COPY
    maintenance: MaintenanceOutcome = NO_MAINTENANCE

    @property
    def cycle(self) -> int:
        """Number of the cycle."""
        return self.read.cycle

    @property
    def lag_s(self) -> float | None:
        """The lag of the newest cut at publication, from the oldest data that the cycle has left, if any."""
        return self.cut.lag_s(since_micros=self.read.left_since_micros) if self.cut is not None else None


class _Stopwatch:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        start_s = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - start_s


@pipeline_step("cycle")
def run_cycle(
    pipeline: Pipeline, spark: SparkSession, *, ends_pauses: bool = False, checks: CheckRunner | None = None
) -> CycleOutcome:
    """Run one cycle; every step recognises what an earlier, interrupted run has done already.

    With ``ends_pauses``, unreadable files are retried now. A failed check of ``checks`` blocks publication;
    without them, nothing is checked.

    Raises:
        CdcError: a step failed; earlier steps are kept, and the next cycle resumes from them.
    """
    watch = _Stopwatch()
    # First, so that the log reaches beyond the moment of a copy that this very cycle completes.
    with watch.measure("copy"):
        copy = copy_tables(pipeline, spark)
    with watch.measure("read"):
        read = read_generations(pipeline, spark, ends_pauses=ends_pauses)
    with watch.measure("order"):
        order = order_changes(pipeline, spark)
    if checks is not None:
        with watch.measure("check"):
            checks.run_due()
    with watch.measure("merge"):
        merges = _merge_all(pipeline, spark)
    with watch.measure("publish"):
        cut = publish_cut(pipeline)
    with watch.measure("maintain"):
        maintenance = maintain_lake(pipeline, spark)
    return CycleOutcome(read, order, merges, cut, watch.seconds, copy, maintenance)


def _merge_all(pipeline: Pipeline, spark: SparkSession) -> tuple[MergeOutcome, ...]:
    """Bring all tables and histories up to the log."""
    tables = merge_tables(pipeline, spark, pipeline.tables)
    return tables + extend_histories(pipeline, spark, pipeline.histories)


@pipeline_step("end of an interrupted cycle")
def finish_cycle(pipeline: Pipeline, spark: SparkSession) -> None:
    """Publish what an interrupted run has read, before more is read.

    A table that is built up to a cycle of the log is recognised only as long as that is the newest one, so a
    pipeline that is interrupted again and again, sooner than a cycle takes, would otherwise get no further.
    """
    if _is_behind(pipeline):
        order_changes(pipeline, spark)
        _merge_all(pipeline, spark)
        publish_cut(pipeline)


def _is_behind(pipeline: Pipeline) -> bool:
    read_cycle, logged_cycle = (read_mark(pipeline.lake.system_table(name)).cycle for name in (RAW, LOG))
    cut = newest_cut(pipeline.lake)
    return logged_cycle < read_cycle or (cut.cycle if cut is not None else 0) < logged_cycle
