"""Reading a short tick in the process that runs it: a task of Spark costs more than some thousand records."""

from collections.abc import Iterable
from contextlib import closing
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table

from cdc_platform.lake.commits import fact, ticks_between
from cdc_platform.lake.writes import compares_and_sets
from cdc_platform.model.slices import ReadPlan
from cdc_platform.pipeline.pipeline import Pipeline

MOST_BYTES: Final = 16 * 1024 * 1024
"""What this process holds at most of a tick, whatever cluster does the rest."""
MOST_RECORDS: Final = 20_000
"""After a tick of more records the next one is not tried here."""
MOST_SLICES: Final = 64
"""This process reads a few at a time; Spark's tasks share more of them better."""


def read_near(pipeline: Pipeline, raw: Table, tick: int, plan: ReadPlan) -> pa.Table | None:
    """Return the raw records of a plan; None where it is for Spark's tasks to read.

    Args:
        pipeline: the pipeline.
        raw: the version of the raw records that the tick is planned on.
        tick: number of the tick.
        plan: what the tick reads.
    """
    if not compares_and_sets(raw) or not _is_short(pipeline, plan) or _was_large(raw, tick - 1):
        return None
    batches = pipeline.source.read_here(tick, plan)
    if batches is None:
        return None
    with closing(batches):
        return _collect(batches)


def _is_short(pipeline: Pipeline, plan: ReadPlan) -> bool:
    most_micros = pipeline.settings.read_here_s * 1_000_000
    spans = (piece.end_inclusive_micros - piece.start_exclusive_micros for piece in plan.slices)
    return len(plan.slices) <= MOST_SLICES and all(span <= most_micros for span in spans)


def _was_large(raw: Table, tick: int) -> bool:
    before = next(ticks_between(raw, tick - 1, tick), None)
    return before is not None and int(fact(before, "added-records") or 0) > MOST_RECORDS


def _collect(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    found: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        found.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > MOST_BYTES:
            return None
    return pa.Table.from_batches(found)
