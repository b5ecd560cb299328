"""Base of sources whose reads the platform divides into tasks."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.sources.task_plan import TaskPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_platform.sources.loading import TaskRecords


class SparkSource(ABC):
    """A source whose reads the platform divides into tasks."""

    @abstractmethod
    def plan_tasks(self, cycle: int, plan: ReadPlan, max_tasks: int) -> TaskPlan:
        """Return the read of a plan in at most `max_tasks` tasks."""

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, max_tasks: int) -> "TaskRecords":
        """Return the raw records of a plan, read in at most `max_tasks` tasks."""
        from cdc_platform.sources.loading import plan_records

        return plan_records(spark, self.plan_tasks(cycle, plan, max_tasks))

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: tasks report their own errors."""
        return nullcontext()
