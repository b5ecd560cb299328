"""Completion of the log: values that the source did not send are found in the batch, the tables and the log.

There is one algorithm: the lines of each key chain, in order (`key_chains.py`).
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
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.model.rows.changes import ChangeKind
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.completing.distributed_completion import DistributedCompletion
from cdc_platform.pipeline.completing.stored_rows import Lookup
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.read_reports import has_texts
from cdc_platform.spark.frames.small import ONE_TASK
from cdc_platform.spark.frames.some_rows import IS_TRUNCATE, ROW_ID
from cdc_platform.spark.frames.table_frames import bring_frame, cache_frame
from cdc_platform.spark.log.order import UNSOUND
from cdc_platform.spark.log.ordered_rows import by_table, ids_of, lack_values, lacking_rows
from cdc_platform.spark.log.unresolved import LACKS_VALUES
from cdc_platform.spark.session.session_settings import changed_settings

MOST_ROWS: Final = 500_000
"""Of so many rows to complete, every task gets the keys, so that no table has to be moved."""
_MOST_KEY_BYTES: Final = 64 * 1024 * 1024
"""The same of their keys."""


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
    most_rows: int = MOST_ROWS,
) -> DataFrame:
    """Return ordered changes with the values that the source left out, as far as they are known.

    Args:
        pipeline: the pipeline.
        spark: session that does the work.
        ordered: the result of `order_events`, persisted.
        cycle: cycle of the log before these changes, which the tables must have reached.
        cache: ends when nobody asks for the changes any more.
        most_rows: of so many rows every task gets the keys; for more, the tables are moved to them.

    Raises:
        CommitConflict: another run worked on the tables at the same time.
    """
    condition = asked_changes(pipeline)
    lacking = _measure_lacking(ordered, condition)
    if not lacking.changes:
        return ordered
    # What goes to quarantine did not happen, as far as other changes are concerned.
    sound, unsound = ordered.where(f"NOT {UNSOUND}"), ordered.where(UNSOUND)
    lookup = Lookup(pipeline, spark, cycle, lacking.columns)
    is_few = lacking.changes <= most_rows and lacking.key_bytes <= _MOST_KEY_BYTES
    has_replays = _has_replays(pipeline, cycle)
    completion = DistributedCompletion(
        lookup, partial(cache_frame, cache), sound, lacking.truncates, is_few=is_few, has_replays=has_replays
    )
    asked_ids = ordered.where(condition).select(*ROW_ID).dropna().distinct()
    return completion.complete(asked_ids).unionByName(unsound)


def complete_few(pipeline: Pipeline, spark: SparkSession, ordered: pa.Table, cycle: int) -> pa.Table:
    """Return what `complete_changes` returns for a small batch, in the order of the log.

    Most small batches lack nothing, and cost no query. Most others cost one.
    """
    asked = frozenset(ids_of(lacking_rows(ordered, completes_log=pipeline.capabilities.completes_log)))
    if not asked:
        return ordered
    # A struct that is null has no values in fields that may not be null.
    nullable = pa.schema([field.with_nullable(True) for field in ordered.schema])
    sound = ordered.filter(pc.invert(ordered[UNSOUND])).cast(nullable)
    lacked = by_table(sound.filter(lack_values(sound)), "unavailable_columns")
    truncates = sound.filter(pc.equal(sound["change_kind"], ChangeKind.TRUNCATE.value)).sort_by("ordinal")
    has_replays = _has_replays(pipeline, cycle)
    lookup = Lookup(pipeline, spark, cycle, {table: frozenset(chain(*lacked[table])) for table, _ in asked})
    completion = DistributedCompletion(
        lookup,
        bring_frame,
        spark.createDataFrame(sound),
        by_table(truncates, "ordinal"),
        is_few=True,
        has_replays=has_replays,
    )
    _ = lookup.versions  # one task would take too long to build a table that is behind from all of the log
    # Late rows are looked for in all of the log.
    with changed_settings(spark, {} if has_replays else ONE_TASK):
        completed = completion.complete_few(asked)
    unchanged = ordered.filter(pc.invert(pc.is_in(ordered["ordinal"], completed["ordinal"])))
    return pa.concat_tables([unchanged, completed.cast(unchanged.schema)]).sort_by("ordinal")


@dataclass(frozen=True)
class _Lacking:
    """Changes of a batch that are to be completed.

    Args:
        columns: which columns sound changes lack, by table; only tables of which a change is to be completed.
        truncates: ordinals of the sound truncates of these tables, in order.
        changes: how many are to be completed.
        key_bytes: of their keys.
    """

    columns: Mapping[str, frozenset[str]]
    truncates: Mapping[str, Sequence[int]]
    changes: int
    key_bytes: int


def _measure_lacking(ordered: DataFrame, condition: str) -> _Lacking:
    """Measure the changes of a batch that a condition selects; one Spark job."""
    is_asked = F.expr(condition)
    lacked = F.when(F.expr(f"NOT {UNSOUND} AND {LACKS_VALUES}"), F.col("unavailable_columns"))
    truncate = F.when(F.expr(f"NOT {UNSOUND} AND {IS_TRUNCATE}"), F.col("ordinal"))
    measured = ordered.groupBy("table_name").agg(
        F.count_if(is_asked).alias("changes"),
        F.flatten(F.collect_set(lacked)).alias("columns"),
        F.collect_list(truncate).alias("truncates"),
        F.coalesce(F.sum(F.when(is_asked, F.octet_length("keys"))), F.lit(0)).alias("key_bytes"),
    )
    rows = [row for row in measured.collect() if row["changes"]]
    return _Lacking(
        columns={row["table_name"]: frozenset(row["columns"]) for row in rows},
        truncates={row["table_name"]: sorted(row["truncates"]) for row in rows},
        changes=sum(row["changes"] for row in rows),
        key_bytes=sum(row["key_bytes"] for row in rows),
    )


def _has_replays(pipeline: Pipeline, cycle: int) -> bool:
    """Return whether a replay after a cycle may have brought changes older than those before it."""
    return has_texts(pipeline, f"kind = '{RecordKind.FILE.value}' and cycle > {cycle}")
