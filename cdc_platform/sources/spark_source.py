"""Base of sources that Spark reads through a data source of the platform."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from cdc_platform.model.stream.read_windows import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource


class SparkSource(ABC):
    """A source that Spark reads through a data source of the platform."""

    @abstractmethod
    def spark_format(self) -> "type[DataSource]":
        """Return the data source to register with a Spark session."""

    @abstractmethod
    def spark_options(self, cycle: int, plan: ReadPlan, max_tasks: int) -> dict[str, str]:
        """Return the Spark options that read a plan in at most `max_tasks` tasks."""

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, max_tasks: int) -> "DataFrame":
        """Return the raw records of a plan, read in at most `max_tasks` tasks."""
        from cdc_platform.sources.loading import load_with

        return load_with(spark, self.spark_format(), self.spark_options(cycle, plan, max_tasks))

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: tasks report their own errors."""
        return nullcontext()
