"""The platform's data source in Spark."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.sources.loading import load_tasks, read_tasks
from cdc_platform.sources.task_plan import TaskPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [pa.table({"a": [1, 2]}), pa.table({"a": [3]})]
PLAN = TaskPlan(ROWS[0].schema, pa.Table.to_batches, ROWS)


@pytest.mark.integration
def test_each_session_reads_a_plan(spark: "SparkSession") -> None:
    """A session knows the data source, whether or not another one knows it that was used before."""
    for session in (spark, spark, spark.newSession(), spark):
        assert sorted(row.a for row in load_tasks(session, PLAN).collect()) == [1, 2, 3]
        spark.createDataFrame([], "b int")


@pytest.mark.integration
def test_a_worker_searches_no_modules_for_garbage(spark: "SparkSession") -> None:
    """Spark collects garbage after each task; a process that is no worker exempts nothing from that."""
    plan = TaskPlan(pa.schema([("frozen", pa.int64())]), _frozen_objects, [(), ()])
    frozen = gc.get_freeze_count()
    assert min(row.frozen for row in load_tasks(spark, plan).collect()) > 10_000
    assert all(row["frozen"] <= frozen for batch in read_tasks(plan) for row in batch.to_pylist())


def _frozen_objects(_part: object) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"frozen": [gc.get_freeze_count()]})


def test_this_process_reads_a_plan() -> None:
    """Its parts come one after the other."""
    assert [row["a"] for batch in read_tasks(PLAN) for row in batch.to_pylist()] == [1, 2, 3]
