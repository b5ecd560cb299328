"""Completion of the log: values that the source omitted are looked up in the batch, the tables and the log.

There is one algorithm, which processes the lines of each key chain in order (`key_chains.py`).
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.model.rows.resolution import RowId, key_chains_of
from cdc_platform.model.stream.records import ChangeKind, RecordKind
from cdc_platform.pipeline.completing.distributed_completion import MAX_STORED_BYTES, DistributedCompletion
from cdc_platform.pipeline.completing.stored_rows import ROW_ID, Lookup, changes_of, ids_frame
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import has_texts
from cdc_platform.spark.frames.table_frames import cache_frame, collect_frame, local_frame
from cdc_platform.spark.log.event_order import (
    CompletedChanges,
    Order,
    count_partial_updates,
    further_partial_updates,
    without_order,
)
from cdc_platform.spark.log.order import IS_TRUNCATE, UNSOUND
from cdc_platform.spark.log.ordered_rows import by_table, ids_of, incomplete_few, lack_values
from cdc_platform.spark.log.unknown_values import LACKS_VALUES, incomplete_changes
from cdc_platform.spark.session.session_settings import ONE_TASK, changed_settings

MAX_ROWS: Final = 500_000
"""Up to this many rows to complete, every task gets all keys, so that no table is shuffled."""
_MAX_KEY_BYTES: Final = 64 * 1024 * 1024
"""The same limit for the bytes of their keys."""
_OF_CHANGE: Final = (
    "new_values",
    "old_values",
    "keys",
    "record_id",
    "ordering_key",
    "transaction_id",
    "origin",
)
"""The columns of a change whose values may be large."""
_FIXED_BYTES: Final = 200
"""Approximate bytes of its other columns."""


def complete_changes(
    pipeline: Pipeline,
    spark: SparkSession,
    changes: DataFrame,
    cycle: int,
    cache: ExitStack,
    max_rows: int = MAX_ROWS,
) -> DataFrame:
    """Return ordered changes with the values that the source omitted, as far as they are known.

    Args:
        pipeline: the pipeline.
        spark: Spark session.
        changes: the result of `order_events`, persisted.
        cycle: cycle of the log before these changes, which the tables must have reached.
        cache: closes when the changes are no longer needed.
        max_rows: up to this many rows, every task gets the keys; for more, the tables are shuffled.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    condition = incomplete_changes(pipeline.capabilities)
    scope = _measure_scope(changes, condition)
    if not scope.changes:
        return changes
    # For other changes, quarantined ones did not happen.
    sound, unsound = changes.where(f"NOT {UNSOUND}"), changes.where(UNSOUND)
    lookup = Lookup(pipeline, spark, cycle, scope.columns)
    is_few = scope.changes <= max_rows and scope.key_bytes <= _MAX_KEY_BYTES
    has_replays = _has_replays(pipeline, cycle)
    completion = DistributedCompletion(
        lookup, partial(cache_frame, cache), sound, scope.truncates, is_few=is_few, has_replays=has_replays
    )
    incomplete_ids = changes.where(condition).select(*ROW_ID).dropna().distinct()
    return completion.complete(incomplete_ids).unionByName(unsound)


def complete_moved_rows(
    pipeline: Pipeline, spark: SparkSession, cycle: int, cache: ExitStack, changes: DataFrame, order: Order
) -> CompletedChanges | None:
    """Return changes that are not ordered yet, with the values of rows whose keys change completed.

    Only the changes of these rows are ordered twice, and kept meanwhile. None if there are many such rows, or
    if changes may be older than those in the log.

    Args:
        pipeline: the pipeline, which completes no other rows.
        spark: Spark session.
        cycle: cycle of the log before these changes, which the tables must have reached.
        cache: closes when the changes are no longer needed.
        changes: sound changes.
        order: orders some of the changes as all of them will be.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    if _has_replays(pipeline, cycle):
        return None
    ids = _moved_rows(changes, incomplete_changes(pipeline.capabilities))
    if not ids:
        return None if ids is None else CompletedChanges(changes, {})
    rows = ids_frame(spark, ids)
    moved_changes = cache_frame(cache, order(changes_of(changes, rows, {table for table, _ in ids})))
    complete = _complete_if_few(pipeline, spark, cycle, moved_changes)
    if complete is None:
        complete = complete_changes(pipeline, spark, moved_changes, cycle, cache)
    further = further_partial_updates(complete, count_partial_updates(moved_changes))
    other_changes = changes.join(rows, list(ROW_ID), "left_anti")
    complete = without_order(complete.where(f"NOT {IS_TRUNCATE}"))
    return CompletedChanges(other_changes.unionByName(complete), further)


def _moved_rows(changes: DataFrame, condition: str) -> frozenset[RowId] | None:
    """Return the rows to complete, and all rows that key changes connect to them; None if there are many."""
    is_moved = f"previous_keys IS NOT NULL OR {condition}"
    moves = changes.where(is_moved).selectExpr(*ROW_ID, "previous_keys", f"{condition} AS is_incomplete")
    rows = moves.limit(MAX_ROWS + 1).toArrow()
    if rows.num_rows > MAX_ROWS or rows.nbytes > _MAX_KEY_BYTES:
        return None
    incomplete = frozenset(ids_of(rows.filter(rows["is_incomplete"]).select(ROW_ID).drop_null()))
    former_keys = rows["previous_keys"].to_pylist()
    links = [
        (row_id, (row_id[0], former))
        for row_id, former in zip(ids_of(rows), former_keys, strict=True)
        if former is not None
    ]
    return incomplete | key_chains_of(incomplete, links).keys()


def _complete_if_few(
    pipeline: Pipeline, spark: SparkSession, cycle: int, changes: DataFrame
) -> DataFrame | None:
    """Return changes completed in this process, None if only tasks can complete them."""
    sizes = (F.coalesce(F.octet_length(name), F.lit(0)) for name in _OF_CHANGE)
    row_bytes = reduce(add, sizes, F.lit(_FIXED_BYTES))
    if (changes.agg(F.sum(row_bytes)).collect()[0][0] or 0) > MAX_STORED_BYTES:
        return None
    complete = complete_few(pipeline, spark, changes.toArrow().sort_by("ordinal"), cycle)
    return local_frame(spark, complete) if complete is not None else None


def complete_few(pipeline: Pipeline, spark: SparkSession, changes: pa.Table, cycle: int) -> pa.Table | None:
    """Return the same as `complete_changes` for a small batch, in the order of the log.

    Most small batches lack nothing and need no query. Most others need one. None if only tasks can complete
    it, since the values may be too large for this process.
    """
    incomplete = frozenset(ids_of(incomplete_few(changes, completes_log=pipeline.capabilities.completes_log)))
    if not incomplete:
        return changes
    if _has_replays(pipeline, cycle):
        # Late rows are followed from the whole log.
        return None
    # A null struct has no values, not even in its non-nullable fields.
    nullable = pa.schema([field.with_nullable(True) for field in changes.schema])
    sound = changes.filter(pc.invert(changes[UNSOUND])).cast(nullable)
    missing = by_table(sound.filter(lack_values(sound)), "unavailable_columns")
    truncates = sound.filter(pc.equal(sound["change_kind"], ChangeKind.TRUNCATE.value)).sort_by("ordinal")
    columns = {table: frozenset(chain(*missing[table])) for table, _ in incomplete}
    lookup = Lookup(pipeline, spark, cycle, columns)
    completion = DistributedCompletion(
        lookup,
        collect_frame,
        local_frame(spark, sound),
        by_table(truncates, "ordinal"),
        is_few=True,
        has_replays=False,
    )
    _ = lookup.versions  # one task would take too long to build a table that is behind from all of the log
    with changed_settings(spark, ONE_TASK):
        whole_rows = completion.complete_few(incomplete)
    if whole_rows is None:
        return None
    other_changes = changes.filter(pc.invert(pc.is_in(changes["ordinal"], whole_rows["ordinal"])))
    return pa.concat_tables([other_changes, whole_rows.cast(other_changes.schema)]).sort_by("ordinal")


@dataclass(frozen=True)
class _CompletionScope:
    """Changes of a batch that must be completed.

    Args:
        columns: columns that sound changes lack, by table; only tables with changes to complete.
        truncates: ordinals of the sound truncates of these tables, in order.
        changes: number of changes to complete.
        key_bytes: total size of their keys.
    """

    columns: Mapping[str, frozenset[str]]
    truncates: Mapping[str, Sequence[int]]
    changes: int
    key_bytes: int


def _measure_scope(changes: DataFrame, condition: str) -> _CompletionScope:
    """Measure the changes of a batch that match a condition, in one Spark job."""
    is_incomplete = F.expr(condition)
    missing = F.when(F.expr(f"NOT {UNSOUND} AND {LACKS_VALUES}"), F.col("unavailable_columns"))
    truncate = F.when(F.expr(f"NOT {UNSOUND} AND {IS_TRUNCATE}"), F.col("ordinal"))
    measures = changes.groupBy("table_name").agg(
        F.count_if(is_incomplete).alias("changes"),
        F.flatten(F.collect_set(missing)).alias("columns"),
        F.collect_list(truncate).alias("truncates"),
        F.coalesce(F.sum(F.when(is_incomplete, F.octet_length("keys"))), F.lit(0)).alias("key_bytes"),
    )
    rows = [row for row in measures.collect() if row["changes"]]
    return _CompletionScope(
        columns={row["table_name"]: frozenset(row["columns"]) for row in rows},
        truncates={row["table_name"]: sorted(row["truncates"]) for row in rows},
        changes=sum(row["changes"] for row in rows),
        key_bytes=sum(row["key_bytes"] for row in rows),
    )


def _has_replays(pipeline: Pipeline, cycle: int) -> bool:
    """Return whether a replay after a cycle may have added changes older than those before it."""
    return has_texts(pipeline, f"kind = '{RecordKind.FILE.value}' and cycle > {cycle}")
