"""The source for Debezium's events in Kafka topics."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.lineage import Lineage
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest
from cdc_platform.model.stream.window_plans import plan_arrivals
from cdc_platform.sources.debezium.files.source import (
    DESCRIBED_MESSAGES,
    DebeziumSource,
    states_of,
    tables_of,
)
from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.kafka.kafka_failures import broker_failures
from cdc_platform.sources.debezium.kafka.messages import ARRIVED, MESSAGES, ROUTE, ROUTED, MessageRouter
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange, plan_ranges
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.outcome import SPLIT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading
    from cdc_platform.sources.debezium.splits.decoded_splits import SparkSplits


class TopicsSource(DebeziumSource):
    """Asks brokers for the offsets of topics, reads few messages itself, and sets up Spark's reads of many.

    Only the lake stores offsets, together with the records up to them: nothing is committed to Kafka.
    """

    def __init__(self, settings: DebeziumSettings, kafka: KafkaInput) -> None:
        super().__init__(settings)
        self.kafka = kafka

    @cached_value
    def client(self) -> KafkaClient:
        """The connection of this process; Spark has its own."""
        return KafkaClient(self.kafka)

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the tables at the start of each topic."""
        beginnings = self.client.beginnings(DESCRIBED_MESSAGES)
        return tables_of(Decoder(self.settings).decode_raw(beginnings))

    def plan(
        self, lineage: Lineage, request: ReadRequest, read_progress: Callable[[], Mapping[str, str]]
    ) -> ReadPlan:
        """Return one window for the whole stream, with the new messages; or an empty plan.

        Raises:
            SourceNotFound: no topic has a name of the settings.
            OffsetsLost: the next messages are gone.
        """
        progress = read_progress()
        ranges = plan_ranges(self.client.partitions(), progress, self.kafka)
        is_unread = any(partition.running_cycle is None for partition in lineage.partitions.values())
        if not (ranges or is_unread or request.has_replay):
            return ReadPlan(())
        windows = plan_arrivals(lineage, request)
        inputs = {"ranges": [asdict(topic_range) for topic_range in ranges], **states_of(progress)}
        return ReadPlan(windows, json.dumps(inputs))

    def read_locally(
        self, cycle: int, plan: ReadPlan, max_s: float
    ) -> "Generator[pa.RecordBatch, None, None] | None":
        """Yield the raw records of the messages of a plan; None if the messages are many or large.

        Raises:
            OffsetsLost: messages of the plan are gone.
            SourceUnreachable: no broker sends a message in time.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        if not max_s:
            return None
        from cdc_platform.sources.debezium.kafka.local_topics import poll_messages

        reading = self._reading(cycle, plan)
        messages = poll_messages(self.client, reading.ranges)
        return None if messages is None else reading.locally(messages.to_batches())

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, max_tasks: int) -> "DataFrame":
        """Decode the messages of a plan in Spark tasks, and return their raw records."""
        from cdc_platform.sources.debezium.splits.decoded_splits import (
            decoded_by_tasks,
            raw_records,
            reports_frame,
        )

        reading = self._reading(cycle, plan)
        if not reading.ranges:
            return reports_frame(spark, reading.locally(()))

        def decode(splits: int) -> "SparkSplits":
            messages = read_messages(spark, self.kafka, reading.ranges, reading.router(splits))
            return decoded_by_tasks(messages, reading.decoder, self._frames)

        return raw_records(spark, reading.read(decode, reading.max_splits(max_tasks)))

    def _reading(self, cycle: int, plan: ReadPlan) -> "TopicsReading":
        from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading

        return TopicsReading(self.settings, self.kafka, cycle, plan)

    @contextmanager
    def _kept_frames(self) -> Iterator[None]:
        """Keep decoded events, and translate broker failures in Spark's tasks into errors of the source."""
        with broker_failures(self.kafka.bootstrap_servers), super()._kept_frames():
            yield

    def close(self) -> None:
        """Drop the connection."""
        self.__dict__.pop("client", None)
        super().close()


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
