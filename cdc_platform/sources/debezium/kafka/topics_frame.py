"""Messages of topics as a data frame, by Spark's own source of Kafka, dealt out to splits."""

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
    """Return the messages of partitions, a split in each task, in about the order in which they were sent.

    Those of a partition keep their order, whatever their senders' clocks said.

    Args:
        spark: session that reads.
        settings: of the topics.
        ranges: the partitions, at least one.
        router: says which messages must be in one split.

    Returns:
        `MESSAGES`, and the number of each one's split.
    """
    source = spark.read.format("kafka").options(**settings.spark_options())
    for name, offsets in _places(ranges).items():
        source = source.option(name, json.dumps(offsets))
    # A task of Spark's source has one partition of a topic.
    messages = source.load().withColumn("micros", F.unix_micros("timestamp")).select(*MESSAGES.names)
    routed = messages.mapInArrow(router, from_arrow_schema(ROUTED))
    dealt = routed.repartition(router.splits, ROUTE).sortWithinPartitions(
        ARRIVED, "topic", "partition", "offset"
    )
    return dealt.select(*MESSAGES.names, F.spark_partition_id().cast("long").alias(SPLIT))


def _places(ranges: Sequence[TopicRange]) -> dict[str, dict[str, object]]:
    """Return the options of Spark's source that say what is read."""
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
