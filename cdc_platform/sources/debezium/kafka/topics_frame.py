"""Messages of topics as a data frame, read by Spark's tasks and divided into splits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.sources.debezium.kafka.message_dealer import DEALT_MESSAGES, MessageDealer
from cdc_platform.sources.debezium.kafka.topic_consumer import TopicConsumer
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import SPLIT
from cdc_platform.sources.loading import load_tasks
from cdc_platform.sources.task_plan import TaskPlan


@dataclass(frozen=True)
class RangesReader:
    """Reads ranges of messages in a task, and deals the messages out to splits.

    Args:
        settings: settings of the topics.
        dealer: deals them out.
    """

    settings: KafkaInput
    dealer: MessageDealer

    def __call__(self, ranges: Sequence[TopicRange]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the ranges as `DEALT_MESSAGES`.

        Raises:
            OffsetsLost: messages of a range are gone.
            SourceUnreachable: no broker sends a message in time.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        return self.dealer(TopicConsumer(self.settings, ranges).batches())


def read_messages(
    spark: SparkSession,
    settings: KafkaInput,
    parts: Sequence[Sequence[TopicRange]],
    dealer: MessageDealer,
) -> DataFrame:
    """Return messages as `DEALT_MESSAGES`, one split per task.

    Args:
        spark: Spark session.
        settings: settings of the topics.
        parts: the ranges that each task reads, before their messages are dealt out.
        dealer: deals messages out to splits.
    """
    plan = TaskPlan(DEALT_MESSAGES, RangesReader(settings, dealer), parts)
    return load_tasks(spark, plan).repartitionById(dealer.splits, SPLIT)
