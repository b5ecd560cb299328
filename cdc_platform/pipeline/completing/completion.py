"""Completion of the log: values that the source omitted are looked up in the batch, the tables and the log.

There is one algorithm, which processes the lines of each key chain in order (`key_chains.py`).
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.model.stream.records import ChangeKind, RecordKind
from cdc_platform.pipeline.completing.distributed_completion import DistributedCompletion
from cdc_platform.pipeline.completing.stored_rows import ROW_ID, Lookup
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import has_texts
from cdc_platform.spark.frames.table_frames import cache_frame, collect_frame, local_frame
from cdc_platform.spark.log.order import IS_TRUNCATE, UNSOUND
from cdc_platform.spark.log.ordered_rows import by_table, ids_of, incomplete_few, lack_values
from cdc_platform.spark.log.unknown_values import LACKS_VALUES, incomplete_changes
from cdc_platform.spark.session.session_settings import ONE_TASK, changed_settings

MAX_ROWS: Final = 500_000
"""Up to this many rows to complete, every task gets all keys, so that no table is shuffled."""
_MAX_KEY_BYTES: Final = 64 * 1024 * 1024
"""The same limit for the bytes of their keys."""


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
