"""Counts of Spark's running tasks, in this process or on a Spark Connect server."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_platform.model.base.progress import TaskCount

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import StageInfo


def watch_tasks(spark: SparkSession) -> Callable[[], TaskCount | None]:
    """Return a function that counts a session's running tasks; it returns None until Spark answers."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        return _TaskCounter().latest
    reports = _ReportedTasks()
    spark.registerProgressHandler(reports)
    return reports.count


class _TaskCounter:
    """Counts tasks in a thread, since a busy Java process may take seconds to answer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._count = self._thread.submit(_count_in_process)

    def latest(self) -> TaskCount | None:
        """Return the answer to the last call, None if there is none yet, and ask again."""
        if not self._count.done():
            return None
        count, self._count = self._count.result(), self._thread.submit(_count_in_process)
        return count


def _count_in_process() -> TaskCount | None:
    # The public access to the context would start another one while a session ends.
    context = SparkContext._active_spark_context  # noqa: SLF001  it has no public name
    try:
        tracker = context.statusTracker() if context is not None else None
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()] if tracker else []
    except (Py4JError, OSError, AttributeError):
        return None
    running_stages = [stage for stage in stages if stage is not None]
    return TaskCount(
        tuple(stage.stageId for stage in running_stages),
        sum(stage.numCompletedTasks for stage in running_stages),
        sum(stage.numTasks for stage in running_stages),
    )


class _ReportedTasks:
    """The stages of running queries, which a server reports every two seconds."""

    def __init__(self) -> None:
        self._stages: dict[str | None, list[StageInfo]] = {}

    def __call__(
        self,
        stages: "Iterable[StageInfo] | None",
        inflight_tasks: int,  # noqa: ARG002  Spark calls it by these names
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Store the report of a query."""
        if done:
            self._stages.pop(operation_id, None)
        else:
            self._stages[operation_id] = [stage for stage in stages or () if not stage.done]

    def count(self) -> TaskCount:
        """Return the tasks of all queries."""
        running_stages = [stage for stages in list(self._stages.values()) for stage in stages]
        return TaskCount(
            tuple(sorted(stage.stage_id for stage in running_stages)),
            sum(stage.num_completed_tasks for stage in running_stages),
            sum(stage.num_tasks for stage in running_stages),
        )
