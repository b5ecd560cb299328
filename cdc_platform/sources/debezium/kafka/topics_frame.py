"""Messages of topics as a data frame, by Spark's own source of Kafka."""

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.kafka.topics_reader import MESSAGES
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput


def read_messages(spark: SparkSession, settings: KafkaInput, ranges: Sequence[TopicRange]) -> DataFrame:
    """Return the messages of partitions in one task, in about the order in which they were sent.

    Those of a partition keep their order, whatever their senders' clocks said. Without partitions there is
    one row without a topic: a task without rows would not report.
    """
    if not ranges:
        none = F.from_json(F.lit("{}"), from_arrow_schema(MESSAGES))
        return spark.range(0, 1, 1, 1).select(none.alias("none")).select("none.*")
    source = spark.read.format("kafka").options(**settings.spark_options())
    for name, offsets in _places(ranges).items():
        source = source.option(name, json.dumps(offsets))
    # All are in one task, so that nothing is shuffled by what follows.
    messages = source.load().coalesce(1).withColumn("micros", F.unix_micros("timestamp"))
    so_far = Window.partitionBy("topic", "partition").orderBy("offset")
    arrived = messages.withColumn("arrived", F.max("micros").over(so_far))
    return arrived.sortWithinPartitions("arrived", "topic", "partition", "offset").select(*MESSAGES.names)


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
