"""Copy of a table's next chunks in one Spark job; one commit has the rows and the note that they are done."""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_platform.errors import CommitConflict, LakeError
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.state.copies import COPY, COPY_BRANCH, ChunkBatch, CopyProgress, load_copy_progress
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.schema.table_options import DELETED, stored_schema
from cdc_platform.model.schema.table_schema import TableSchema, spark_type
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.versions.branch import load_table
from cdc_platform.sources.task_plan import task_errors
from cdc_platform.spark.frames.columns import col
from cdc_platform.spark.frames.table_frames import read_current

SHORT_BATCH_S: Final = 10.0
LONG_BATCH_S: Final = 40.0
"""After a shorter batch of chunks, the next one is larger; after a longer one, half as large."""
SHORTEST_BATCH_S: Final = 1.0
"""A batch that takes less consists of little but its commit, and says little about the chunks to come."""
PARALLEL_RATIO: Final = 1.5
"""If a larger batch takes less than this many times as long as the last one, it was copied in parallel."""


def copy_chunks(pipeline: Pipeline, spark: SparkSession, progress: CopyProgress) -> CopyProgress:
    """Copy the next chunks of a table in one commit on its branch `copy`, and return the progress.

    Raises:
        CommitConflict: another run has copied meanwhile, or has replaced the table's columns.
        CopyExpired: the source no longer has the version that the copy reads.
        SourceError: a chunk could not be read; nothing was committed.
    """
    plan, begun_micros = progress.plan, clock_micros()
    base, schema_id = align_branch(pipeline, progress)
    numbers = progress.missing[: batch_chunks(progress, pipeline.opened_micros)]
    chunk_numbers = progress.done | frozenset(numbers)
    chunk_batch = ChunkBatch(plan.number, base, chunk_numbers, len(numbers), begun_micros, schema_id)
    chunks = [plan.chunks[chunk] for chunk in numbers]
    rows = pipeline.stream_source.read_copy(spark, plan.schema, plan.position_micros, chunks)
    target = pipeline.lake.spark_table(plan.table, COPY_BRANCH)
    columns = read_current(spark, target).schema
    if not has_columns(columns, stored_schema(plan.schema, pipeline.options(plan.table))):
        raise CommitConflict(
            f"Another run has replaced the columns of `{plan.table}`; the next cycle prepares it again."
        )
    rows = rows.select(*_columns_of_table(rows, columns))
    with task_errors():
        rows.writeTo(target).option(f"snapshot-property.{COPY}", chunk_batch.to_text()).append()
    return load_copy_progress(load_table(pipeline, plan.table), plan)


def has_columns(columns: StructType, schema: TableSchema) -> bool:
    """Return whether a table in the lake has exactly the columns of a schema."""
    types = {field.name: field.dataType.simpleString() for field in columns.fields}
    return types == {column.name: spark_type(column.type) for column in schema.columns}


def align_branch(pipeline: Pipeline, progress: CopyProgress) -> tuple[int, int]:
    """Point the branch at the newest commit that counts, and return that snapshot and the table's schema id.

    Raises:
        CommitConflict: another run has copied meanwhile, and its chunks stay.
    """
    table = progress.plan.table
    stored_table = load_table(pipeline, table)
    if load_copy_progress(stored_table, progress.plan).head != progress.head:
        raise CommitConflict(
            f"Another run has copied chunks of `{table}`; the next cycle continues with them."
        )
    base = progress.head or head(stored_table)
    if base is None:
        raise LakeError(
            f"Table `{table}` has no snapshot to copy onto: another program has changed it. Drop it in the "
            "lake; the next cycle recreates it."
        )
    if progress.head is None or progress.is_mixed:
        move_branch(stored_table, COPY_BRANCH, base.snapshot_id, tries=1)
    return base.snapshot_id, stored_table.metadata.current_schema_id


def batch_chunks(progress: CopyProgress, opened_micros: int) -> int:
    """Return the number of chunks in the next batch: one at first, then a number that takes a moderate time.

    Batches grow while they are short, and while more chunks take hardly longer than fewer: to twice as many
    chunks, or to as many as are short one after another. Commits of an earlier process do not count: a batch
    that was too long may have been the reason for its death.

    Args:
        progress: progress of the copy.
        opened_micros: time at which this process opened the pipeline, by the clock of this machine.
    """
    batches = [batch for batch in progress.batches if batch.begun_micros >= opened_micros]
    if not batches:
        return 1
    last, before = batches[0], batches[1] if len(batches) > 1 else None
    if last.seconds > LONG_BATCH_S:
        return max(1, last.chunks // 2)
    is_parallel = before is None or (
        last.chunks > before.chunks and last.seconds < PARALLEL_RATIO * before.seconds
    )
    growth = max(2, int(SHORT_BATCH_S / max(last.seconds, SHORTEST_BATCH_S)))
    return growth * last.chunks if last.seconds < SHORT_BATCH_S or is_parallel else last.chunks


def _columns_of_table(rows: DataFrame, target: StructType) -> Iterator[Column]:
    """Yield the table's columns: the columns of the copy, and those that the options add."""
    for field in target.fields:
        default = F.lit(False) if field.name == DELETED else F.lit(None).cast(field.dataType)
        value = col(field.name) if field.name in rows.columns else default
        yield value.alias(field.name)
