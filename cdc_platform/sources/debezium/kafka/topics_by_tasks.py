"""Messages of topics that tasks of Spark decode beside each other."""

from contextlib import ExitStack
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.sources.debezium.kafka.topics_frame import MessageRouter, read_messages
from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.decoded_splits import SparkSplits
from cdc_platform.sources.debezium.splits.outcome import SplitOutcome
from cdc_platform.sources.debezium.splits.release import CycleRows
from cdc_platform.sources.debezium.splits.rounds import joined_outcome
from cdc_platform.sources.debezium.splits.spark_reading import decoded_by_tasks, raw_records

LEAST_SPLIT_MESSAGES: Final = 2_000
"""Messages of a split: a task takes longer to begin than to decode fewer."""


def read_by_tasks(
    spark: SparkSession, kafka: KafkaInput, reading: TopicsReading, most_tasks: int, frames: ExitStack
) -> DataFrame:
    """Return the raw records of the messages of a reading.

    Args:
        spark: session whose tasks share the splits.
        kafka: the topics.
        reading: the messages.
        most_tasks: how many tasks there are.
        frames: ends when the records have been committed.
    """
    splits, outcome = _decoded(spark, kafka, reading, most_tasks, frames)
    if outcome is None:
        return spark.createDataFrame(pa.Table.from_batches(reading.locally(()), RAW_EVENT_RECORDS))
    opening = outcome.opened(reading.buffer, has_metadata=reading.has_metadata)
    if opening.limit is not None:
        outcome, opening = outcome.without_waiting(opening, splits.free_rows())
    reports = list(reading.reports(outcome, opening))
    return raw_records(spark, CycleRows([splits.frame], reading.release(opening), reports))


def _decoded(
    spark: SparkSession, kafka: KafkaInput, reading: TopicsReading, most_tasks: int, frames: ExitStack
) -> tuple[SparkSplits, SplitOutcome | None]:
    """Return splits that are independent of each other, and their outcome; None without messages.

    Nearly always they are; if not, there is but one, decoded in another round.
    """
    state = DecoderState.from_json(reading.state)
    messages = sum(item.end_exclusive - item.start for item in reading.ranges)
    tasks = 1 if state.flat_deletes else max(1, min(most_tasks, messages // LEAST_SPLIT_MESSAGES))
    # A snapshot that replaces tables is a transaction.
    spreads_snapshots = not state.snapshots.seen

    def decode(count: int) -> SparkSplits:
        router = MessageRouter(count, spreads_snapshots)
        return decoded_by_tasks(read_messages(spark, kafka, reading.ranges, router), reading.decoder, frames)

    splits = decode(tasks)
    outcome = joined_outcome(splits.outcomes, reading.state)
    if outcome is None and splits.outcomes:
        splits = decode(1)
        outcome = joined_outcome(splits.outcomes, reading.state)
    return splits, outcome
