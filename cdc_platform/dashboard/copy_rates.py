"""Running initial copies: progress, rate and time left."""

from dataclasses import dataclass, replace

from cdc_platform.lake.state.copies import Batch, load_copy_progress, load_plans
from cdc_platform.pipeline.on_demand.status import Status
from cdc_platform.pipeline.opened.pipeline import Pipeline


@dataclass(frozen=True)
class CopyRate:
    """A running initial copy; its rate is that of its last batches, None before the first batch ends."""

    table: str
    chunks: int
    copied_chunks: int
    copied_rows: int
    rows_per_s: float | None = None
    left_s: float | None = None


def load_copy_rates(pipeline: Pipeline, status: Status) -> tuple[CopyRate, ...]:
    """Return the running copies of a status, by table."""
    if not status.copies:
        return ()
    plans = load_plans(pipeline.lake)
    rates = []
    for table, copy in status.copies.items():
        plan = plans.get(table)
        if plan is None:  # the copy has ended since the status was read
            continue
        progress = load_copy_progress(pipeline.lake.table(table), plan)
        rate = CopyRate(table, copy.chunks, copy.copied_chunks, copy.copied_rows)
        rates.append(estimate(rate, progress.batches))
    return tuple(rates)


def estimate(copy: CopyRate, batches: tuple[Batch, ...]) -> CopyRate:
    """Return a copy with its rate and the time left, estimated from its last batches."""
    seconds, chunks = sum(batch.seconds for batch in batches), sum(batch.chunks for batch in batches)
    if seconds <= 0 or not chunks or not copy.copied_chunks:
        return copy
    chunks_per_s = chunks / seconds
    return replace(
        copy,
        rows_per_s=copy.copied_rows / copy.copied_chunks * chunks_per_s,
        left_s=(copy.chunks - copy.copied_chunks) / chunks_per_s,
    )
