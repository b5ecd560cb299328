"""Completion of the log: values that the source did not send are found in the batch, the tables and the log.

There is one algorithm: the lines of each key chain, in order (`key_chains.py`). It runs in this process for
what it has in memory anyway, unless the log has to be read; else in Spark's tasks.
"""

from collections import defaultdict
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.completing.completion_size import (
    BOUNDS,
    BY_TASKS,
    Bounds,
    measure_lacking,
    stored_rows_fit,
)
from cdc_platform.pipeline.completing.distributed_completion import DistributedCompletion
from cdc_platform.pipeline.completing.local_completion import complete_locally
from cdc_platform.pipeline.completing.stored_rows import Lookup
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import has_texts
from cdc_platform.spark.frames.some_rows import ROW_ID
from cdc_platform.spark.log.order import UNSOUND
from cdc_platform.spark.log.ordered_rows import lacking_rows
from cdc_platform.spark.log.unresolved import LACKS_VALUES


def asked_changes(pipeline: Pipeline) -> str:
    """Return the SQL of the ordered changes that are to be completed.

    A row that changes its key takes its values along, so these are always looked for; others only where the
    log is to be completed, since the merge of partial updates leaves the stored values as they are.
    """
    if not pipeline.capabilities.leaves_values_out:
        return "false"
    condition = f"NOT {UNSOUND} AND {LACKS_VALUES}"
    if pipeline.capabilities.completes_log:
        return condition
    return f"{condition} AND (previous_keys IS NOT NULL OR change_kind = 'insert')"


def complete_changes(
    pipeline: Pipeline,
    spark: SparkSession,
    ordered: DataFrame,
    cycle: int,
    cache: ExitStack,
    bounds: Bounds = BOUNDS,
) -> DataFrame:
    """Return ordered changes with the values that the source left out, as far as they are known.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        ordered: the result of `order_events`, persisted.
        cycle: cycle of the log before these changes, which the tables must have reached.
        cache: ends when nobody asks for the changes any more.
        bounds: of what is quicker in this process, or with all keys in each task.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    condition = asked_changes(pipeline)
    lacking = measure_lacking(ordered, condition)
    if not lacking.changes:
        return ordered
    has_replays = _has_replays(pipeline, cycle)
    if lacking.fits_driver(bounds) and not has_replays:
        rows = ordered.toArrow()
        asked = lacking_rows(rows, completes_log=pipeline.capabilities.completes_log)
        completed = _complete_here(pipeline, spark, rows, asked, cycle)
        if completed is not None:
            return spark.createDataFrame(completed)
    # What goes to quarantine did not happen, as far as other changes are concerned.
    sound, unsound = ordered.where(f"NOT {UNSOUND}"), ordered.where(UNSOUND)
    lookup = Lookup(pipeline, spark, cycle, lacking.columns)
    is_few = lacking.is_few(bounds)
    completion = DistributedCompletion(lookup, cache, sound, is_few=is_few, has_replays=has_replays)
    asked_ids = ordered.where(condition).select(*ROW_ID).dropna().distinct()
    return completion.complete(asked_ids).unionByName(unsound)


def complete_few(pipeline: Pipeline, spark: SparkSession, ordered: pa.Table, cycle: int) -> pa.Table:
    """Return a small batch with the values that the source left out, in the order of the log.

    Args:
        pipeline: the pipeline.
        spark: session that reads the tables.
        ordered: the result of `order_events`.
        cycle: cycle of the log before these changes, which the tables must have reached.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    asked = lacking_rows(ordered, completes_log=pipeline.capabilities.completes_log)
    if not asked.num_rows:
        return ordered
    completed = None
    if not _has_replays(pipeline, cycle):
        completed = _complete_here(pipeline, spark, ordered, asked, cycle)
    if completed is None:
        with ExitStack() as cache:
            frame = spark.createDataFrame(ordered)
            frame = complete_changes(pipeline, spark, frame, cycle, cache, BY_TASKS)
            completed = frame.toArrow()
    return completed.sort_by("ordinal")


def _complete_here(
    pipeline: Pipeline, spark: SparkSession, ordered: pa.Table, asked: pa.Table, cycle: int
) -> pa.Table | None:
    """Return a batch completed in this process; None where too much is stored, or the log must be read."""
    if not stored_rows_fit(pipeline, asked):
        return None
    lookup = Lookup(pipeline, spark, cycle, _lacking_columns(ordered))
    completed = complete_locally(lookup.few, ordered.filter(pc.invert(ordered[UNSOUND])), asked)
    if completed is None:
        return None
    return pa.concat_tables([completed, ordered.filter(ordered[UNSOUND])], promote_options="default")


def _lacking_columns(ordered: pa.Table) -> dict[str, set[str]]:
    """Return the columns that sound changes lack, by table."""
    lacking, columns = lacking_rows(ordered, completes_log=True), defaultdict[str, set[str]](set)
    names = (lacking[name].to_pylist() for name in ("table_name", "unavailable_columns"))
    for table, unavailable in zip(*names, strict=True):
        columns[table].update(unavailable)
    return columns


def _has_replays(pipeline: Pipeline, cycle: int) -> bool:
    """Return whether a replay after a cycle may have brought changes older than those before it."""
    return has_texts(pipeline, f"kind = '{RecordKind.FILE.value}' and cycle > {cycle}")
