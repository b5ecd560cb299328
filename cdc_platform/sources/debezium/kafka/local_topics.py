"""Small numbers of messages, polled by the process that runs the cycle and ordered by arrival."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from cdc_platform.sources.debezium.kafka.kafka_client import KafkaClient
from cdc_platform.sources.debezium.kafka.messages import MESSAGES
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.wire.messages import RawMessage

MAX_OFFSETS: Final = 20_000
"""Maximum number of offsets; Spark reads larger ranges."""
MAX_BYTES: Final = 16 * 1024**2
"""Maximum bytes of keys, values and headers in this process; Spark reads more."""


def poll_messages(client: KafkaClient, ranges: Sequence[TopicRange]) -> pa.Table | None:
    """Return the messages of ranges in the order of `topics_frame.read_messages`; None if they are large.

    Raises:
        OffsetsLost: messages of a range are gone.
        SourceUnreachable: no broker sends a message in time.
        AccessDenied: the brokers deny access, or access to a topic.
    """
    if sum(topic_range.end_exclusive - topic_range.start for topic_range in ranges) > MAX_OFFSETS:
        return None
    polled: list[RawMessage] = []
    total_bytes = 0
    with closing(client.messages(ranges)) as messages:
        for message in messages:
            total_bytes += _bytes_of(message)
            if total_bytes > MAX_BYTES:
                return None
            polled.append(message)
    return pa.Table.from_pylist(_in_order(polled), MESSAGES)


def _bytes_of(message: RawMessage) -> int:
    headers = (message.headers or {}).items()
    parts = [message.key, message.value, *(part for header in headers for part in header)]
    return sum(len(part) for part in parts if part is not None)


def _in_order(messages: Iterable[RawMessage]) -> list[dict[str, Any]]:
    """Return messages in about the order of sending; each partition keeps its order."""
    rows: list[tuple[tuple[int, str, int, int], dict[str, Any]]] = []
    latest: dict[tuple[str, int], int] = {}
    for message in messages:
        place, micros, offset = (
            (message.topic, message.partition),
            message.timestamp_micros or 0,
            message.position,
        )
        latest[place] = max(micros, latest.get(place, micros))
        rows.append(((latest[place], *place, offset), _row_of(message)))
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _row_of(message: RawMessage) -> dict[str, Any]:
    headers = (
        None
        if message.headers is None
        else [{"key": key, "value": it} for key, it in message.headers.items()]
    )
    place = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    return {
        **place,
        "micros": message.timestamp_micros,
        "key": message.key,
        "value": message.value,
        "headers": headers,
    }
