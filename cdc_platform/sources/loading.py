"""Reads by Spark's tasks, and of the same plans by this process."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.sources.task_plan import TaskPlan
from cdc_platform.sources.workers import Batches, in_worker, prepare_reader


@dataclass(frozen=True)
class TaskRecords:
    """Records of a source that Spark's tasks read, and few that this process has already.

    Args:
        inputs: the inputs of the tasks.
        read: yields the records of a task's inputs, in a worker.
        local_batches: the records that this process has.
        left_since_micros: as of `ReadPlan`, from a source that knows it only once it has read.
    """

    inputs: DataFrame
    read: Batches
    local_batches: Sequence[pa.RecordBatch] = ()
    left_since_micros: int | None = None

    def through(self, function: Batches, schema: pa.Schema) -> DataFrame:
        """Return what a function yields for the records of each task, without those of this process."""
        apply = in_worker(partial(_apply, self.read, function))
        return self.inputs.mapInArrow(apply, from_arrow_schema(schema))


def _apply(read: Batches, function: Batches, inputs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return function(read(inputs))


def plan_records(spark: SparkSession, plan: TaskPlan) -> TaskRecords:
    """Return the records of a plan, each part read by one task."""
    parts = len(plan.parts)
    return TaskRecords(spark.range(0, parts, 1, max(1, parts)), partial(_read_parts, plan))


def load_tasks(spark: SparkSession, plan: TaskPlan) -> DataFrame:
    """Return the data of a plan, each part read by one task."""
    return plan_records(spark, plan).through(iter, plan.schema)


def read_tasks(plan: TaskPlan) -> Generator[pa.RecordBatch, None, None]:
    """Yield the data of a plan, read part after part in this process."""
    prepare_reader()
    for part in plan.parts:
        yield from plan.read(part)


def _read_parts(plan: TaskPlan, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the data of the parts with these numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from plan.read(plan.parts[number])
