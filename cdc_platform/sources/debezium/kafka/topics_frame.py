"""Messages of topics as a data frame from Spark's own Kafka source, divided into splits."""

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.sources.debezium.kafka.messages import ARRIVED, MESSAGES, ROUTE, ROUTED, MessageRouter
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import SPLIT


def read_messages(
    spark: SparkSession,
    settings: KafkaInput,
    ranges: Sequence[TopicRange],
    router: MessageRouter,
) -> DataFrame:
    """Return the messages of partitions, one split per task, in about the order of sending.

    The messages of a partition keep their order, regardless of their senders' clocks.

    Args:
        spark: Spark session.
        settings: settings of the topics.
        ranges: the partitions, at least one.
        router: assigns messages to splits.

    Returns:
        `MESSAGES`, and the number of each message's split.
    """
    source = spark.read.format("kafka").options(**settings.spark_options())
    for name, offsets in _places(ranges).items():
        source = source.option(name, json.dumps(offsets))
    # A task of Spark's source reads one partition of a topic.
    messages = source.load().withColumn("micros", F.unix_micros("timestamp")).select(*MESSAGES.names)
    routed = messages.mapInArrow(router, from_arrow_schema(ROUTED))
    dealt = routed.repartition(router.splits, ROUTE).sortWithinPartitions(
        ARRIVED, "topic", "partition", "offset"
    )
    return dealt.select(*MESSAGES.names, F.spark_partition_id().cast("long").alias(SPLIT))


def _places(ranges: Sequence[TopicRange]) -> dict[str, dict[str, object]]:
    """Return the options of Spark's source that define the ranges."""
    places: dict[str, dict[str, object]] = {"assign": {}, "startingOffsets": {}, "endingOffsets": {}}
    for topic in sorted({topic_range.topic for topic_range in ranges}):
        own = [topic_range for topic_range in ranges if topic_range.topic == topic]
        places["assign"][topic] = [topic_range.partition for topic_range in own]
        places["startingOffsets"][topic] = {
            str(topic_range.partition): topic_range.start for topic_range in own
        }
        places["endingOffsets"][topic] = {
            str(topic_range.partition): topic_range.end_exclusive for topic_range in own
        }
    return places
