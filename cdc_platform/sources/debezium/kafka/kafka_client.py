"""Kafka client of the platform itself, librdkafka: topics, the ends of their partitions, and few messages.

Spark reads what is too much for one process.
"""

import logging
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cdc_platform.errors import SettingError, SourceError
from cdc_platform.model.base.libraries import optional_library
from cdc_platform.sources.debezium.kafka.kafka_failures import refusal, silence
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicPartition, TopicRange, check_offsets
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.wire.messages import RawMessage

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LOGGER: Final = logging.getLogger(__name__)
GROUP: Final = "cdc_platform"
"""Consumer group without committed offsets, which only the lake stores."""
_DENIED: Final = frozenset(
    {
        *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
        *("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "_SSL"),
    }
)
_MOVING: Final = frozenset(
    {
        *("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"),
        *("OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_OR_PART"),
    }
)
"""Errors of partitions with a new leader, for which the client tries again."""
MOVED_S: Final = 0.2
_LOST: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})
"""Errors of a partition that no longer has the next offset."""
_CONSUMER: Final = {
    "group.id": GROUP,
    "enable.auto.commit": False,
    # Missing messages are an error and never skipped.
    "auto.offset.reset": "error",
    # A range may end with transaction markers or with offsets that compaction removed.
    "enable.partition.eof": True,
    # All requested messages exist, so a broker need not wait for more.
    "fetch.wait.max.ms": 10,
    # The platform's errors report problems; librdkafka's log would repeat them with every try.
    "log_level": 2,
    # Limits the data that is fetched ahead of this process.
    "queued.max.messages.kbytes": 16 * 1024,
}


class KafkaClient:
    """Client that inspects the topics of a setting and reads few of their messages.

    Raises:
        LibraryMissing: the client's library is not installed.
        SettingError: the library rejects a property.
    """

    def __init__(self, settings: KafkaInput) -> None:
        self._settings, self._timeout_s = settings, settings.timeout_s
        self._last_problem: tuple[str, str] | None = None
        self._admin: AdminClient = self._open("AdminClient", {})

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of all topics that match, by topic and number.

        Raises:
            SourceUnreachable: no broker answers.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        from confluent_kafka import KafkaException

        give_up_at = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._with_offsets(self._places())
            except KafkaException as error:
                if _name_of(error) not in _MOVING or time.monotonic() > give_up_at:
                    raise self._meaning(error) from error
            time.sleep(MOVED_S)

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
        yield from self.messages(partition.first(share) for partition in partitions)

    def messages(self, ranges: Iterable[TopicRange]) -> Generator[RawMessage, None, None]:
        """Yield the messages of ranges, ordered by offset within a partition, in any order of partitions.

        Raises:
            OffsetsLost: messages of a range are gone.
            SourceUnreachable: no broker sends a message in time.
            AccessDenied: the brokers deny access, or access to a topic.
        """
        from confluent_kafka import TopicPartition as Place

        remaining = {
            (topic_range.topic, topic_range.partition): topic_range
            for topic_range in ranges
            if topic_range.start < topic_range.end_exclusive
        }
        if not remaining:
            return
        self._last_problem = None
        properties = {**_CONSUMER, "isolation.level": self._settings.isolation}
        with closing(self._open("Consumer", properties)) as consumer:
            consumer.assign([Place(*place, topic_range.start) for place, topic_range in remaining.items()])
            while remaining:
                message = self._next(consumer, remaining)
                place, is_end = (message.topic(), message.partition()), message.error() is not None
                topic_range = replace(remaining[place], start=message.offset() + (not is_end))
                if not is_end and message.offset() < topic_range.end_exclusive:
                    yield _raw(message)
                remaining[place] = topic_range
                if topic_range.start >= topic_range.end_exclusive:
                    del remaining[place]
                    consumer.incremental_unassign([Place(*place)])

    def _next(self, consumer: Any, remaining: Mapping[tuple[str, int], TopicRange]) -> Any:
        """Return the next message, or end of a partition, within the ranges."""
        from confluent_kafka import KafkaException

        give_up_at = time.monotonic() + self._timeout_s
        while True:
            message = consumer.poll(max(0.0, give_up_at - time.monotonic()))
            if message is None:
                raise self._meaning(TimeoutError("no message came"))
            error, topic_range = message.error(), remaining.get((message.topic(), message.partition()))
            # The consumer group, which brokers may reject, is not needed: only errors of these ranges matter.
            if topic_range is None:
                continue
            if error is None or error.name() == "_PARTITION_EOF":
                return message
            self._remember(error)
            if error.name() in _LOST:
                self._check_lost(consumer, topic_range)
            if error.name() not in _MOVING:
                raise self._meaning(KafkaException(error))

    def _check_lost(self, consumer: Any, topic_range: TopicRange) -> None:
        """Raise OffsetsLost if a partition lacks the next message of a range."""
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Place

        try:
            ends = consumer.get_watermark_offsets(
                Place(topic_range.topic, topic_range.partition), timeout=self._timeout_s
            )
        except KafkaException as error:
            raise self._meaning(error) from error
        check_offsets(
            TopicPartition(topic_range.topic, topic_range.partition, topic_range.topic_id, *ends),
            topic_range.start,
        )

    def _open(self, kind: str, properties: dict[str, object]) -> Any:
        library = optional_library("confluent_kafka", "kafka")
        from confluent_kafka.admin import AdminClient

        client_properties = {**self._settings.client_properties(), **properties, "error_cb": self._remember}
        try:
            # Its own log goes to the error output; the platform's errors report what matters.
            client_type = {"AdminClient": AdminClient, "Consumer": library.Consumer}[kind]
            return client_type(client_properties, logger=LOGGER)
        except library.KafkaException as error:
            raise SettingError(
                "input.kafka.client",
                f"has properties that librdkafka rejects; some of its names differ from Java's: {error}",
            ) from error

    def _remember(self, error: Any) -> None:
        # While a broker is down, librdkafka keeps trying; its last problem says more than the timeout.
        self._last_problem = error.name(), error.str()

    def _meaning(self, error: Exception) -> SourceError:
        names = {_name_of(error), (self._last_problem or ("", ""))[0]}
        reason = "; ".join(text for text in (str(error), (self._last_problem or ("", ""))[1]) if text)
        meaning = refusal if names & _DENIED else silence
        return meaning(self._settings.bootstrap_servers, reason)


def _name_of(error: Exception) -> str:
    """Return Kafka's name of an error; empty for other errors."""
    kafka_error: Any = error.args[0] if error.args else None
    return str(kafka_error.name()) if hasattr(kafka_error, "name") else ""


def _id_of(topic: Any) -> str:
    """Return the topic's id; brokers before 2.8 have none and return the same for all topics."""
    topic_id = topic.topic_id
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return f"{high % 2**64:016x}{low % 2**64:016x}"


def _raw(message: Any) -> RawMessage:
    headers = message.headers()
    return RawMessage(
        message.topic(),
        message.key(),
        message.value(),
        None if headers is None else dict(headers),
        message.partition(),
        message.offset(),
        message.timestamp()[1] * 1000,
        message.offset(),
    )
