"""Raw records from messages of topics, read here or by Spark: by one reader, since they have one order."""

import json
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cdc_platform.sources.debezium.kafka.topic_ranges import TopicProgress, TopicRange
from cdc_platform.sources.debezium.splits.decoded_splits import OpenedSplit
from cdc_platform.sources.debezium.splits.release import Release
from cdc_platform.sources.debezium.splits.reports import Reading, report_batches
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.transactions.arrival import Arrival
from cdc_platform.sources.debezium.transactions.passed_until import PassedUntil
from cdc_platform.sources.debezium.transactions.transaction_buffer import TransactionBuffer
from cdc_platform.sources.debezium.wire.messages import RawMessage
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.workers import prepare_worker

MESSAGES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("micros", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""What the reading takes of each message, in the order of arrival."""


@dataclass(frozen=True)
class TopicsReading:
    """The reading of one cycle, called with its messages by a task of Spark or by the pipeline's process.

    Args:
        context: of the cycle.
        inputs: what the plan says of partitions and states.
        patience_micros: how long a transaction that is not whole may wait.
    """

    context: SplitContext
    inputs: str
    patience_micros: int

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the raw records of batches of messages."""
        prepare_worker()
        inputs = json.loads(self.inputs)
        ranges = {item.origin: item for item in (TopicRange(**fields) for fields in inputs["ranges"])}
        files = {origin: item.as_file for origin, item in ranges.items()}
        window, passed_until = self.context.window, PassedUntil.of(inputs["passed"])
        reader = SplitReader(self.context, inputs["state"], files)
        for batch in messages:
            _take(reader, batch)
        buffer = TransactionBuffer(
            is_one_stream=False,
            passed_until=passed_until,
            patience_micros=self.patience_micros,
            read_micros=window.end_inclusive_micros,
        )
        split = OpenedSplit.of(reader, buffer)
        yield from Release(split.opening, passed_until.truncated)(split.rows)
        resume = split.opening.resume
        progress = {origin: _progress(item, resume.get(origin)) for origin, item in ranges.items()}
        yield from report_batches(
            Reading(files, progress), split.outcome, split.opening, EventBatches(self.context.cycle), window
        )


def _take(reader: SplitReader, batch: pa.RecordBatch) -> None:
    for message in _messages_of(batch):
        origin = f"{message.topic}/{message.partition}"
        micros = message.timestamp_micros or 0
        decoded = reader.decoder.decode_raw([message])
        reader.collector.take(Arrival(item, origin, message.position, micros) for item in decoded)


def _progress(topic_range: TopicRange, resume: int | None) -> str:
    next_offset = topic_range.end_exclusive if resume is None else resume
    return TopicProgress(topic_range.topic_id, next_offset, topic_range.end_exclusive).to_text()


def _messages_of(batch: pa.RecordBatch) -> Iterator[RawMessage]:
    columns = [batch.column(name).to_pylist() for name in MESSAGES.names]
    for topic, partition, offset, micros, key, value, headers in zip(*columns, strict=True):
        if topic is not None:
            yield RawMessage(topic, key, value, _headers(headers), partition, offset, micros, offset)


def _headers(headers: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if headers is None else {item["key"]: item["value"] for item in headers}
