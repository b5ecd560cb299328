"""Small numbers of messages, read by the process that runs the cycle."""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from cdc_platform.sources.debezium.kafka.topic_consumer import TopicConsumer
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicRange
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput

MAX_OFFSETS: Final = 20_000
"""Maximum number of offsets; Spark's tasks read larger ranges."""
MAX_BYTES: Final = 16 * 1024**2
"""Maximum bytes of messages in this process; Spark's tasks read more."""


def read_small(settings: KafkaInput, ranges: Sequence[TopicRange]) -> list[pa.RecordBatch] | None:
    """Return the messages of ranges as `MESSAGES`; None if they are many or large.

    Raises:
        OffsetsLost: messages of a range are gone.
        SourceUnreachable: no broker sends a message in time.
        AccessDenied: the brokers deny access, or access to a topic.
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
