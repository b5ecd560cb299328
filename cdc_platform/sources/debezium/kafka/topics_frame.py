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
    found = source.load().coalesce(1).withColumn("micros", F.unix_micros("timestamp"))
    so_far = Window.partitionBy("topic", "partition").orderBy("offset")
    arrived = found.withColumn("arrived", F.max("micros").over(so_far))
    return arrived.sortWithinPartitions("arrived", "topic", "partition", "offset").select(*MESSAGES.names)


def _places(ranges: Sequence[TopicRange]) -> dict[str, dict[str, object]]:
    """Return the options of Spark's source that say what is read."""
    places: dict[str, dict[str, object]] = {"assign": {}, "startingOffsets": {}, "endingOffsets": {}}
    for topic in sorted({one.topic for one in ranges}):
        own = [one for one in ranges if one.topic == topic]
        places["assign"][topic] = [one.partition for one in own]
        places["startingOffsets"][topic] = {str(one.partition): one.start for one in own}
        places["endingOffsets"][topic] = {str(one.partition): one.end_exclusive for one in own}
    return places
