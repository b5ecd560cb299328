"""Reads of small cycles in the process that runs them: starting a Spark task takes longer than reading."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from cdc_platform.lake.catalog.lake import own_tables
from cdc_platform.lake.commits.commits import cycles_between, number_of
from cdc_platform.lake.commits.writes import CycleStep, append_cycle
from cdc_platform.model.base.progress import Step
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.file_contents import ContentNotes

MAX_BYTES: Final = 16 * 1024**2
"""Maximum bytes of a cycle that this process holds, independent of the Spark cluster."""
MAX_RECORDS: Final = 20_000
"""Records of a cycle above which this process does not try to read the next one."""


def commit_local(
    pipeline: Pipeline,
    raw: Table,
    step: CycleStep,
    plan: ReadPlan,
    properties: Mapping[str, str],
    replayed_rows: pa.Table | None = None,
) -> bool:
    """Read and commit a small plan, and return whether it was small; larger plans need Spark's tasks.

    Args:
        pipeline: the pipeline.
        raw: the version of the raw records that the cycle is planned on.
        step: the cycle.
        plan: what the cycle reads.
        properties: further entries of the snapshot's summary.
        replayed_rows: raw records of a replay, which the cycle commits too.

    Raises:
        CommitConflict: another run has committed the same cycle; nothing was changed.
    """
    if _was_large(raw, step.before):
        return False
    batches = pipeline.source.read_locally(step.committed, plan, pipeline.settings.local_read_s)
    if batches is None:
        return False
    progress_unit = ("records",) if plan.files is None else ("files", plan.files)
    with closing(batches), pipeline.progress.step("read", *progress_unit) as reading:
        rows = _collect(
            batches, reading, own_tables(delivers_events=pipeline.capabilities.delivers_events)[RAW]
        )
    if rows is None:
        return False
    if replayed_rows is not None:
        rows = pa.concat_tables([rows, replayed_rows])
    append_cycle(rows, raw, step, properties, ContentNotes)
    return True


def _was_large(raw: Table, cycle: int) -> bool:
    snapshot = next(cycles_between(raw, cycle - 1, cycle), None)
    return snapshot is not None and (number_of(snapshot, "added-records") or 0) > MAX_RECORDS


def _advance(reading: Step, batch: pa.RecordBatch) -> None:
    """Count the records of a batch, or the files that it reports on; a source may also report its state."""
    if reading.total is None:
        reading.advance(batch.num_rows)
        return
    reports = pc.sum(pc.equal(batch["kind"], RecordKind.FILE.value)).as_py() or 0
    reading.done = min(reading.done + reports, reading.total)


def _collect(batches: Iterable[pa.RecordBatch], reading: Step, schema: pa.Schema) -> pa.Table | None:
    small_batches: list[pa.RecordBatch] = []
    total_bytes = 0
    for batch in batches:
        small_batches.append(batch)
        _advance(reading, batch)
        total_bytes += batch.nbytes
        if total_bytes > MAX_BYTES:
            return None
    return pa.Table.from_batches(small_batches, schema)
