"""Reads through the platform's own Spark data sources, task by task."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cdc_platform.sources.workers import prepare_worker

_IS_REGISTERED: Final = "DATA_SOURCE_ALREADY_EXISTS"


class TaskReader(DataSourceReader):
    """Reads one part of a plan per task.

    Args:
        read: yields the batches of a part, in a worker; it imports libraries there, since workers are forked.
        parts: the part of each task.
    """

    def __init__(self, read: Callable[[Any], Iterator[pa.RecordBatch]], parts: Sequence[Any]) -> None:
        self._read, self._parts = read, parts

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per task."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        prepare_worker()
        return self._read(partition.value)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != _IS_REGISTERED:
            raise
        # Spark looked for the name in the last used session; this makes the current one the last used.
        spark.createDataFrame([], "nothing int")
        spark.dataSource.register(source)


def load_with(spark: SparkSession, source: type[DataSource], options: Mapping[str, str]) -> DataFrame:
    """Register a data source with the session, and return its data for some options."""
    register_source(spark, source)
    return spark.read.format(source.name()).options(**options).load()


def read_with(source: type[DataSource], options: Mapping[str, str]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a data source for some options, task after task, in this process."""
    data_source = source(dict(options))
    reader = data_source.reader(cast("StructType", data_source.schema()))
    for partition in reader.partitions():
        yield from cast("Generator[pa.RecordBatch, None, None]", reader.read(partition))
