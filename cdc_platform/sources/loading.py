"""Spark's data source of the platform: it runs the tasks of any `TaskPlan`."""

from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator, Sequence
from typing import Final, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.sources.task_plan import TaskPlan
from cdc_platform.sources.workers import prepare_worker

FORMAT_NAME: Final = "cdc_platform_tasks"
PLAN_OPTION: Final = "plan"
_IS_REGISTERED: Final = "DATA_SOURCE_ALREADY_EXISTS"


class TaskSource(DataSource):
    """Format `cdc_platform_tasks`; its option is a plan, pickled as Spark pickles functions for its tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the columns of the result."""
        return from_arrow_schema(self._plan().schema)

    def reader(self, schema: StructType) -> "TaskReader":  # noqa: ARG002 - Spark's signature
        """Return the reader of the parts of the plan."""
        return TaskReader(self._plan())

    def _plan(self) -> TaskPlan:
        prepare_worker()
        return cast("TaskPlan", cloudpickle.loads(b64decode(self.options[PLAN_OPTION])))


class TaskReader(DataSourceReader):
    """Reads one part of a plan per task."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per task."""
        return [InputPartition(part) for part in self._plan.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        prepare_worker()
        yield from self._plan.read(partition.value)


def load_tasks(spark: SparkSession, plan: TaskPlan) -> DataFrame:
    """Return the data of a plan, read by Spark's tasks."""
    _register(spark)
    text = b64encode(cloudpickle.dumps(plan)).decode()  # type: ignore[no-untyped-call]  # Spark's own
    return spark.read.format(FORMAT_NAME).option(PLAN_OPTION, text).load()


def _register(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(TaskSource)
    except AnalysisException as error:
        if error.getCondition() != _IS_REGISTERED:
            raise
        # Spark looked for the name in the last used session; this makes the current one the last used.
        spark.createDataFrame([], "nothing int")
        spark.dataSource.register(TaskSource)


def read_tasks(plan: TaskPlan) -> Generator[pa.RecordBatch, None, None]:
    """Yield the data of a plan, read part after part in this process."""
    prepare_worker()
    for part in plan.parts:
        yield from plan.read(part)
