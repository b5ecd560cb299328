"""Consumer of ranges of messages, in the pipeline's process and in Spark's tasks."""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from cdc_platform.sources.debezium.kafka.connection import MOVING, KafkaConnection
from cdc_platform.sources.debezium.kafka.messages import MESSAGES
from cdc_platform.sources.debezium.kafka.topic_partition import TopicPartition, check_losses, find_loss
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput

MAX_MESSAGES: Final = 5_000
"""Maximum number of messages in a batch, which holds what has arrived."""
MAX_OFFSETS: Final = 20_000
"""Maximum number of offsets that the pipeline's process reads; Spark's tasks read larger ranges."""
MAX_BYTES: Final = 16 * 1024**2
"""The same of bytes of messages."""
_GROUP: Final = "cdc_platform"
"""Consumer group without committed offsets, which only the lake stores."""
_LOST: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})
"""Errors of a partition that no longer has the next offset."""
_PROPERTIES: Final[dict[str, object]] = {
    "group.id": _GROUP,
    "enable.auto.commit": False,
    # Missing messages are an error and never skipped.
    "auto.offset.reset": "error",
    # A range may end with transaction markers or with offsets that compaction removed.
    "enable.partition.eof": True,
    # All requested messages exist, so a broker need not wait for more.
    "fetch.wait.max.ms": 10,
    # Limits the data that is fetched ahead of this process.
    "queued.max.messages.kbytes": 16 * 1024,
}
_Place = tuple[str, int]


class TopicConsumer:
    """Reads ranges of messages, once.

    Args:
        settings: settings of the topics.
        ranges: the ranges; at most one of each partition.
    """

    def __init__(self, settings: KafkaInput, ranges: Iterable[TopicRange]) -> None:
        self._connection, self._timeout_s = KafkaConnection(settings), settings.timeout_s
        self._remaining = {(item.topic, item.partition): item for item in ranges if not item.is_empty}

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the messages as `MESSAGES`, ordered by offset within a partition, in any order of partitions.

        Raises:
            OffsetsLost: messages of a range are gone.
            SourceUnreachable: no broker sends a message in time.
            AccessDenied: the brokers deny access, or access to a topic.
            LibraryMissing: the client's library is not installed.
            SettingError: the library rejects a property.
        """
        if not self._remaining:
            return
        with closing(self._connection.open("Consumer", _PROPERTIES)) as consumer:
            from confluent_kafka import TopicPartition as Place

            consumer.assign([Place(*place, item.start) for place, item in self._remaining.items()])
            while self._remaining:
                messages = list(self._within_ranges(consumer, self._next(consumer)))
                if messages:
                    yield _batch(messages)

    def _next(self, consumer: Any) -> Iterator[Any]:
        """Yield the messages and ends of partitions that have arrived, at least one."""
        give_up_at = time.monotonic() + self._timeout_s
        is_waiting = True
        while is_waiting:
            first = consumer.poll(max(0.0, give_up_at - time.monotonic()))
            if first is None:
                raise self._connection.meaning(TimeoutError("no message came"))
            for message in (first, *consumer.consume(MAX_MESSAGES - 1, 0)):
                if message.error() is None or self._is_end(consumer, message):
                    is_waiting = False
                    yield message

    def _is_end(self, consumer: Any, message: Any) -> bool:
        """Return whether a message without content reports a partition's end, not a transient problem."""
        from confluent_kafka import KafkaException

        error, item = message.error(), self._remaining.get((message.topic(), message.partition()))
        # The consumer group, which brokers may reject, is not needed: only errors of these ranges matter.
        if item is None:
            return False
        if error.name() == "_PARTITION_EOF":
            return True
        self._connection.remember(error)
        if error.name() in _LOST:
            self._check_lost(consumer, item)
        if error.name() not in MOVING:
            raise self._connection.meaning(KafkaException(error))
        return False

    def _within_ranges(self, consumer: Any, messages: Iterable[Any]) -> Iterator[Any]:
        """Yield the messages of the ranges, which become shorter by them."""
        next_offsets: dict[_Place, int] = {}
        ends = {place: item.end_exclusive for place, item in self._remaining.items()}
        for message in messages:
            place, offset = (message.topic(), message.partition()), message.offset()
            end_exclusive = ends.get(place)
            if end_exclusive is None:
                continue
            is_end = message.error() is not None
            next_offsets[place] = offset + (not is_end)
            if not is_end and offset < end_exclusive:
                yield message
        self._shorten(consumer, next_offsets)

    def _shorten(self, consumer: Any, next_offsets: dict[_Place, int]) -> None:
        from confluent_kafka import TopicPartition as Place

        for place, start in next_offsets.items():
            rest = self._remaining[place].after(start)
            if not rest.is_empty:
                self._remaining[place] = rest
            else:
                del self._remaining[place]
                consumer.incremental_unassign([Place(*place)])

    def _check_lost(self, consumer: Any, item: TopicRange) -> None:
        """Raise OffsetsLost if a partition lacks the next message of a range."""
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Place

        try:
            ends = consumer.get_watermark_offsets(Place(item.topic, item.partition), timeout=self._timeout_s)
        except KafkaException as error:
            raise self._connection.meaning(error) from error
        tp = TopicPartition(item.topic, item.partition, item.topic_id, *ends)
        check_losses(filter(None, (find_loss(tp, item.start),)))


def read_few(settings: KafkaInput, ranges: Sequence[TopicRange]) -> list[pa.RecordBatch] | None:
    """Return the messages of ranges as `MESSAGES`; None if they are many or large.

    Raises:
        SourceError, LibraryMissing, SettingError: see `TopicConsumer.batches`.
    """
    if sum(item.end_exclusive - item.start for item in ranges) > MAX_OFFSETS:
        return None
    batches: list[pa.RecordBatch] = []
    total_bytes = 0
    with closing(TopicConsumer(settings, ranges).batches()) as some:
        for batch in some:
            total_bytes += batch.nbytes
            if total_bytes > MAX_BYTES:
                return None
            batches.append(batch)
    return batches


def _batch(messages: Sequence[Any]) -> pa.RecordBatch:
    columns = (
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.timestamp()[1] * 1000 for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
        [_headers(message.headers()) for message in messages],
    )
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, MESSAGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, object]] | None:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]
