"""Counts of the tasks that Spark runs."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.model.base.progress import TaskCount
from cdc_platform.spark.session.running_tasks import watch_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
WITHIN_S: Final = 60.0
TASKS: Final = 3


def test_tasks_are_counted_while_they_run(spark: "SparkSession", tmp_path: Path) -> None:
    """A job of three tasks that wait for a file has three tasks, and none once it is over."""
    file = tmp_path / "continue"
    count, frame = watch_tasks(spark), spark.range(0, TASKS, 1, TASKS)

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not file.exists():
            time.sleep(0.01)
        yield from batches

    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(frame.mapInArrow(wait, "id long").collect)
        end = time.monotonic() + WITHIN_S
        counted = count()
        while (counted is None or not counted.total) and time.monotonic() < end:
            counted = count()
        file.touch()
        assert len(rows.result(WITHIN_S)) == TASKS
    assert counted is not None
    assert (counted.done, counted.total, len(counted.stages)) == (0, TASKS, 1)
    assert count() == TaskCount((), 0, 0)
