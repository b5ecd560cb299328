"""Parallel decoding of splits by Spark's tasks, and their raw records."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.sources.debezium.splits.decoded_splits import SparkSplits
from cdc_platform.sources.debezium.splits.outcome import SPLIT_BLOCKS
from cdc_platform.sources.debezium.splits.release import CycleRows

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def decoded_by_tasks(messages: DataFrame, decoder: Batches, frames: ExitStack) -> SparkSplits:
    """Return the decoded splits of messages, which Spark keeps until the end of the stack."""
    frame = messages.mapInArrow(decoder, from_arrow_schema(SPLIT_BLOCKS)).persist()
    frames.callback(frame.unpersist)
    return SparkSplits(frame)


def raw_records(spark: SparkSession, rows: CycleRows[DataFrame]) -> DataFrame:
    """Return the raw records of a cycle."""
    splits = reduce(DataFrame.unionAll, rows.splits)
    records = splits.mapInArrow(rows.release, from_arrow_schema(RAW_EVENT_RECORDS))
    return records.unionAll(reports_frame(spark, rows.reports))


def reports_frame(spark: SparkSession, reports: Iterable[pa.RecordBatch]) -> DataFrame:
    """Return the few raw records that report on a cycle."""
    return spark.createDataFrame(pa.Table.from_batches(reports, RAW_EVENT_RECORDS))
