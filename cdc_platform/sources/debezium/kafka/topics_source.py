"""The source for Debezium's events in Kafka topics."""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING

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
from cdc_platform.sources.debezium.kafka.topic_consumer import read_few
from cdc_platform.sources.debezium.kafka.topic_ranges import first_left, plan_ranges
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading
    from cdc_platform.sources.loading import TaskRecords


class TopicsSource(DebeziumSource):
    """Asks brokers for the offsets of topics, reads few messages itself, and many in Spark's tasks.

    Only the lake stores offsets, together with the records up to them: nothing is committed to Kafka.
    """

    def __init__(self, settings: DebeziumSettings, kafka: KafkaInput) -> None:
        super().__init__(settings)
        self.kafka = kafka

    @cached_value
    def client(self) -> KafkaClient:
        """The connection of this process; each task has its own."""
        return KafkaClient(self.kafka)

    def list_tables(self) -> tuple[TableSchema, ...]:
        """Return the tables at the start of each topic."""
        beginnings = self.client.beginnings(DESCRIBED_MESSAGES)
        return tables_of(Decoder(self.settings).decode_beginning(beginnings))

    def plan(
        self, lineage: Lineage, request: ReadRequest, read_progress: Callable[[], Mapping[str, str]]
    ) -> ReadPlan:
        """Return one window for the whole stream, with the new messages; or an empty plan.

        Raises:
            SourceNotFound: no topic has a name of the settings.
            OffsetsLost: the next messages are gone.
        """
        progress = read_progress()
        partitions = self.client.partitions()
        offsets_after = partial(self.client.offsets_after, partitions)
        ranges = plan_ranges(partitions, progress, self.kafka, offsets_after, request.clock_micros // 1000)
        is_unread = any(partition.running_cycle is None for partition in lineage.partitions.values())
        if not (ranges or is_unread or request.has_replay):
            return ReadPlan(())
        windows = plan_arrivals(lineage, request)
        left_messages = first_left(partitions, ranges)
        left_micros = self.client.oldest_micros(left_messages) if left_messages else None
        # A compacted topic may have lost these messages, and brokers may keep no times.
        left_since_micros = left_micros or request.clock_micros if left_messages else None
        inputs = {"ranges": ranges, **states_of(progress)}
        return ReadPlan(windows, inputs, left_since_micros=left_since_micros)

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
        reading = self._reading(cycle, plan)
        messages = read_few(self.kafka, reading.ranges)
        return None if messages is None else reading.locally(messages)

    def read(self, spark: "SparkSession", cycle: int, plan: ReadPlan, max_tasks: int) -> "TaskRecords":
        """Decode the messages of a plan in Spark tasks, and return their raw records."""
        return self._reading(cycle, plan).by_tasks(spark, max_tasks, self._frames)

    def _reading(self, cycle: int, plan: ReadPlan) -> "TopicsReading":
        from cdc_platform.sources.debezium.kafka.topics_reader import TopicsReading

        return TopicsReading(self.settings, self.kafka, cycle, plan)

    def close(self) -> None:
        """Drop the connection."""
        self.__dict__.pop("client", None)
        super().close()
