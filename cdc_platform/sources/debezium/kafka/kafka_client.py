"""Inspection of topics: the ends of their partitions, and their first messages."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cdc_platform.sources.debezium.kafka.connection import MOVING, KafkaConnection, name_of
from cdc_platform.sources.debezium.kafka.messages import in_order
from cdc_platform.sources.debezium.kafka.topic_consumer import TopicConsumer
from cdc_platform.sources.debezium.kafka.topic_partition import TopicPartition
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange, first_messages
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.wire.messages import RawMessage

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

MOVED_S: Final = 0.2
Answer = TypeVar("Answer")


class KafkaClient:
    """Client that inspects the topics of a setting.

    Raises:
        LibraryMissing: the client's library is not installed.
        SettingError: the library rejects a property.
    """

    def __init__(self, settings: KafkaInput) -> None:
        self._settings, self._timeout_s = settings, settings.timeout_s
        self._connection = KafkaConnection(settings)
        self._admin: AdminClient = self._connection.open("AdminClient", {})

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of all topics that match, by topic and number.

        Raises:
            SourceUnreachable: no broker answers.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        return self._answer(lambda: self._with_offsets(self._places()))

    def _places(self) -> list[tuple[str, int, str]]:
        from confluent_kafka import TopicCollection

        names = self._admin.list_topics(timeout=self._timeout_s).topics
        topics = sorted(name for name in names if self._settings.matches(name))
        if not topics:
            return []
        descriptions = self._admin.describe_topics(TopicCollection(topics), request_timeout=self._timeout_s)
        answers = [descriptions[name].result() for name in topics]
        return sorted(
            (topic.name, partition.id, _id_of(topic)) for topic in answers for partition in topic.partitions
        )

    def _with_offsets(self, places: list[tuple[str, int, str]]) -> list[TopicPartition]:
        from confluent_kafka.admin import OffsetSpec

        # Ends first: if messages are deleted in between, a partition must not end before it begins.
        ends = self._offsets(places, OffsetSpec.latest())
        beginnings = self._offsets(places, OffsetSpec.earliest())
        return [
            TopicPartition(topic, number, topic_id, beginnings[topic, number], ends[topic, number])
            for topic, number, topic_id in places
        ]

    def _offsets(self, places: list[tuple[str, int, str]], spec: Any) -> dict[tuple[str, int], int]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as Asked

        isolation = IsolationLevel[self._settings.isolation.upper()]
        specs = {Asked(topic, number): spec for topic, number, _ in places}
        if not specs:
            return {}
        results = self._admin.list_offsets(specs, isolation_level=isolation, request_timeout=self._timeout_s)
        return {
            (place.topic, place.partition): int(result.result().offset) for place, result in results.items()
        }

    def offsets_after(self, partitions: Sequence[TopicPartition], millis: int) -> Mapping[str, int]:
        """Return the offset of the first message of each partition that was sent after a moment, if any.

        Raises:
            SourceUnreachable: no broker answers.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        from confluent_kafka.admin import OffsetSpec

        places = [(item.topic, item.partition, item.topic_id) for item in partitions]
        offsets = self._answer(lambda: self._offsets(places, OffsetSpec.for_timestamp(millis + 1)))
        return {f"{topic}/{number}": offset for (topic, number), offset in offsets.items() if offset >= 0}

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """Return an answer of the brokers; ask again while partitions get new leaders."""
        from confluent_kafka import KafkaException

        give_up_at = time.monotonic() + self._timeout_s
        # The client gives its problems only when it is polled.
        self._admin.poll(0)
        self._connection.forget()
        while True:
            try:
                return ask()
            except KafkaException as error:
                self._admin.poll(0)
                if name_of(error) not in MOVING or time.monotonic() > give_up_at:
                    raise self._connection.meaning(error) from error
            time.sleep(MOVED_S)

    def beginnings(self, limit: int) -> Generator[RawMessage, None, None]:
        """Yield the first messages of each partition, about ``limit`` in total.

        Raises:
            SourceUnreachable: no broker answers.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        partitions = [
            partition for partition in self.partitions() if partition.end_exclusive > partition.earliest
        ]
        share = max(1, limit // max(1, len(partitions)))
        ranges = [first_messages(partition, share) for partition in partitions]
        yield from in_order(TopicConsumer(self._settings, ranges).batches())

    def oldest_micros(self, ranges: Sequence[TopicRange]) -> int | None:
        """Return the earliest send time of messages; None if none is left, or they have no times.

        Raises:
            OffsetsLost: messages of a range are gone.
            SourceUnreachable: no broker sends a message in time.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        batches = TopicConsumer(self._settings, ranges).batches()
        times = (micros for batch in batches for micros in batch["micros"].to_pylist())
        return min((micros for micros in times if micros > 0), default=None)


def _id_of(topic: Any) -> str:
    """Return the topic's id; brokers before 2.8 have none and return the same for all topics."""
    topic_id = topic.topic_id
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return f"{high % 2**64:016x}{low % 2**64:016x}"
