"""Completing the log: values that the source did not send are found in the batch, and in the tables."""

from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.model.rows.connected_rows import connected, key_chains_of
from cdc_platform.model.rows.resolution import RowId
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.completing.complete_rows import complete_rows, links_of, row_ids, with_completions
from cdc_platform.pipeline.completing.completion_size import (
    DRIVER_BOUNDS,
    DriverBounds,
    has_few_rows,
    is_within,
    measure_lacking,
    measure_lacking_rows,
)
from cdc_platform.pipeline.completing.distributed_completion import (
    DistributedCompletion,
    complete_distributed,
)
from cdc_platform.pipeline.completing.resolve_late import late_rows, resolve_late
from cdc_platform.pipeline.completing.stored_rows import Lookup
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import has_texts
from cdc_platform.spark.frames.some_rows import IS_TRUNCATE, ROW_ID, changes_of, ids_frame, key_chains_frame
from cdc_platform.spark.log.order import UNSOUND
from cdc_platform.spark.log.ordered_rows import lacking_rows
from cdc_platform.spark.log.unresolved import LACKS_VALUES


@dataclass(frozen=True)
class _Batch:
    """Input of the completion of a batch, see `complete_changes`; `condition` selects its changes."""

    lookup: Lookup
    cache: ExitStack
    condition: str
    bounds: DriverBounds
    is_small: bool
    is_few: bool


def complete_changes(
    pipeline: Pipeline,
    spark: SparkSession,
    ordered: DataFrame,
    cycle: int,
    cache: ExitStack,
    bounds: DriverBounds = DRIVER_BOUNDS,
) -> DataFrame:
    """Return ordered changes with the values that the source left out, as far as somebody knows them.

    A row that changes its key takes its values along, so these are always looked for; others only where the
    log is to be completed, since the merge of partial updates leaves the stored values as they are.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        ordered: the result of `order_records`, persisted.
        cycle: cycle of the log before these changes, which the tables must have reached.
        cache: ends when nobody asks for the changes any more.
        bounds: of a batch within them all that it takes comes to the driver; of a larger one, only what
            belongs to rows that take part in a change of key, where that is within them; and their keys.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    condition = f"NOT {UNSOUND} AND {LACKS_VALUES}"
    if not pipeline.capabilities.completes_log:
        condition += " AND (previous_keys IS NOT NULL OR change_kind = 'insert')"
    lacking = measure_lacking(ordered, condition)
    if not lacking.lacking:
        return ordered
    lookup = Lookup(pipeline, spark, cycle, lacking.columns)
    is_small, is_few = is_within(bounds, pipeline, lacking), has_few_rows(bounds, lacking)
    batch = _Batch(lookup, cache, condition, bounds, is_small, is_few)
    if not lacking.unsound:
        return _complete_in_order(batch, ordered)
    # What goes to quarantine did not happen, as far as others are concerned.
    sound = ordered.where(f"NOT {UNSOUND}")
    return _complete_in_order(batch, sound).unionByName(ordered.where(UNSOUND))


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
    lacking_lines = lacking_rows(ordered, completes_log=pipeline.capabilities.completes_log)
    if not lacking_lines.num_rows:
        return ordered
    lacking = measure_lacking_rows(ordered, lacking_lines)
    if _has_replays(pipeline, cycle) or not is_within(DRIVER_BOUNDS, pipeline, lacking):
        with ExitStack() as cache:
            completed = complete_changes(
                pipeline, spark, spark.createDataFrame(ordered), cycle, cache
            ).toArrow()
    else:
        unsound = ordered[UNSOUND]
        sound = _complete_few(
            Lookup(pipeline, spark, cycle, lacking.columns), ordered.filter(pc.invert(unsound)), lacking_lines
        )
        completed = pa.concat_tables([sound, ordered.filter(unsound)])
    return completed.sort_by("ordinal")


def _complete_few(lookup: Lookup, sound: pa.Table, lacking_lines: pa.Table) -> pa.Table:
    return complete_rows(lookup, sound, connected(row_ids(lacking_lines), links_of(sound)))


def _has_replays(pipeline: Pipeline, cycle: int) -> bool:
    """Return whether a replay after a cycle may have brought changes older than those before it."""
    return has_texts(pipeline, f"kind = '{RecordKind.FILE.value}' and cycle > {cycle}")


def _complete_in_order(batch: _Batch, ordered: DataFrame) -> DataFrame:
    lookup = batch.lookup
    late = late_rows(lookup, ordered) if _has_replays(lookup.pipeline, lookup.cycle) else ()
    if not late:
        return _complete(batch, ordered)
    completions, ids = resolve_late(lookup, ordered, late), ids_frame(lookup.spark, late)
    mine, rest = (ordered.join(ids, list(ROW_ID), how) for how in ("left_semi", "left_anti"))
    completed = lookup.spark.createDataFrame(with_completions(mine.toArrow(), completions))
    return completed.unionByName(_complete(batch, rest))


def _complete(batch: _Batch, ordered: DataFrame) -> DataFrame:
    lookup = batch.lookup
    pipeline, spark = lookup.pipeline, lookup.spark
    if batch.is_small:
        rows = ordered.toArrow()
        lacking_ids = ordered.where(batch.condition).select(*ROW_ID).toArrow()
        return spark.createDataFrame(_complete_few(lookup, rows, lacking_ids))
    links = _links(ordered)
    asked_ids = ordered.where(batch.condition).select(*ROW_ID).dropna().distinct()
    completes_log = pipeline.capabilities.completes_log
    if completes_log and links:
        moving = ids_frame(spark, {row_id for link in links for row_id in link})
        asked_ids = asked_ids.join(moving, list(ROW_ID), "left_semi")
    chains = key_chains_of(_collect(asked_ids) if links or not completes_log else (), links)
    if not chains:
        return (
            complete_distributed(ordered, DistributedCompletion(lookup, batch.cache, batch.is_few))
            if completes_log
            else ordered
        )
    moved = key_chains_frame(spark, chains)
    mine = ordered.join(moved, list(ROW_ID), "left_semi")
    lacking = measure_lacking(mine, LACKS_VALUES)
    if not is_within(batch.bounds, pipeline, lacking):
        lookup = replace(lookup, columns={**lookup.columns, **lacking.columns})
        is_few = batch.is_few and has_few_rows(batch.bounds, lacking)
        completion = DistributedCompletion(lookup, batch.cache, is_few, moved, only_moved=not completes_log)
        return complete_distributed(ordered, completion)
    followed = changes_of(ordered, moved.select(*ROW_ID), {table for table, _ in chains}).toArrow()
    completed = spark.createDataFrame(complete_rows(lookup, followed, chains.keys())).where(
        f"NOT {IS_TRUNCATE}"
    )
    rest = ordered.join(moved, list(ROW_ID), "left_anti")
    if completes_log:
        rest = complete_distributed(rest, DistributedCompletion(lookup, batch.cache, batch.is_few))
    return completed.unionByName(rest)


def _links(ordered: DataFrame) -> list[tuple[RowId, RowId]]:
    moves = ordered.where("previous_keys IS NOT NULL").select(*ROW_ID, "previous_keys").collect()
    return [((row[0], row[1]), (row[0], row[2])) for row in moves]


def _collect(ids: DataFrame) -> set[RowId]:
    return {(row[0], row[1]) for row in ids.collect()}
