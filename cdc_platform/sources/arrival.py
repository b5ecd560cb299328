"""What all sources have in common whose events belong to the cycle that reads them."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from cdc_platform.model.schema.observed_columns import SeenColumn
from cdc_platform.model.schema.schema_reads import Look
from cdc_platform.model.stream.files import are_few, files_from_json
from cdc_platform.model.stream.read_windows import ReadPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource


class SourceOfArrivals(ABC):
    """A source that tells no time and no schema of its own: its clock is this machine's."""

    def look(self, micros: int) -> Look:
        """Return nothing: what there is of a schema, events tell."""
        return Look(micros, (), {}, {}, is_exact=False)

    def clock_micros(self) -> int:
        """Return the time of this machine."""
        return time.time_ns() // 1000

    def start_micros(self) -> int:
        """Return the beginning of time: whatever has been written belongs to the first cut."""
        return 1

    def as_stored(self, _table: str, _name: str, column: SeenColumn) -> SeenColumn:
        """Return a column as it is."""
        return column

    @abstractmethod
    def spark_format(self) -> "type[DataSource]":
        """Return the data source to register with a Spark session."""

    @abstractmethod
    def spark_options(self, cycle: int, plan: ReadPlan, most_tasks: int) -> dict[str, str]:
        """Return the options with which Spark reads the files of a plan, in at most so many tasks."""

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, most_tasks: int) -> "DataFrame":
        """Return the raw records of the files of a plan, read in at most so many tasks."""
        from cdc_platform.sources.loading import load_with

        return load_with(spark, self.spark_format(), self.spark_options(cycle, plan, most_tasks))

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing: tasks report what they fail of."""
        return nullcontext()

    def read_here(
        self, cycle: int, plan: ReadPlan, most_s: float
    ) -> "Generator[pa.RecordBatch, None, None] | None":
        """Yield the raw records of the files of a plan; None where they are large, or many."""
        if not most_s or not are_few(files_from_json(json.loads(plan.inputs)["files"])):
            return None
        from cdc_platform.sources.loading import read_with

        return read_with(self.spark_format(), self.spark_options(cycle, plan, 1))
