"""Counts of the tasks that Spark runs."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pytest

from cdc_platform.model.base.progress import TaskCount
from cdc_platform.spark.session import running_tasks
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
    # An answer is that to the call before.
    while (counted := count()) != TaskCount((), 0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    assert counted == TaskCount((), 0, 0)


def test_a_spark_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines about a step come, without tasks, while Java does not answer."""
    answers = Event()

    def hang() -> TaskCount:
        answers.wait(WITHIN_S)
        return TaskCount((7,), 1, 2)

    monkeypatch.setattr(running_tasks, "_count_in_process", hang)
    count = watch_tasks(cast("SparkSession", object()))
    assert count() is None
    answers.set()
    end = time.monotonic() + WITHIN_S
    while (counted := count()) is None and time.monotonic() < end:
        time.sleep(0.01)
    assert counted == TaskCount((7,), 1, 2)
