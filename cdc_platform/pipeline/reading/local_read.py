"""Reading a small tick in the process that runs it: a task of Spark takes longer to begin than to read it."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import RAW, own_tables
from cdc_platform.lake.commits.commits import fact, ticks_between
from cdc_platform.lake.commits.writes import TickStep, append_tick
from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.pipeline.core.pipeline import Pipeline

MOST_BYTES: Final = 16 * 1024**2
"""What this process holds at most of a tick, whatever cluster does the rest."""
MOST_RECORDS: Final = 20_000
"""After a tick of more records the next one is not tried here."""


def commit_near(
    pipeline: Pipeline,
    raw: Table,
    step: TickStep,
    plan: ReadPlan,
    properties: Mapping[str, str],
    replayed: pa.Table | None = None,
) -> bool:
    """Read and commit a small plan, and tell whether it was one; the others are for Spark's tasks.

    Args:
        pipeline: the pipeline.
        raw: the version of the raw records that the tick is planned on.
        step: the tick.
        plan: what the tick reads.
        properties: further entries of the snapshot's summary.
        replayed: raw records that are judged anew with it.

    Raises:
        CommitConflict: another run has committed the same tick; nothing was changed.
    """
    if _was_large(raw, step.before):
        return False
    batches = pipeline.source.read_here(step.committed, plan, pipeline.settings.read_here_s)
    if batches is None:
        return False
    with closing(batches):
        rows = _collect(batches, own_tables(hands_out_events=pipeline.traits.hands_out_events)[RAW])
    if rows is None:
        return False
    if replayed is not None:
        rows = pa.concat_tables([rows, replayed])
    append_tick(rows, raw, step, properties)
    return True


def _was_large(raw: Table, tick: int) -> bool:
    before = next(ticks_between(raw, tick - 1, tick), None)
    return before is not None and int(fact(before, "added-records") or 0) > MOST_RECORDS


def _collect(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table | None:
    found: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        found.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > MOST_BYTES:
            return None
    return pa.Table.from_batches(found, schema)
