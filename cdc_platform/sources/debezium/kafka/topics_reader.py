"""Raw records from messages of topics, read here or by Spark: by one reader, since they have one order."""

import json
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicProgress, TopicRange
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.transactions.arrivals import Arrival, PassedUntil
from cdc_platform.sources.debezium.transactions.finalise import settled
from cdc_platform.sources.debezium.transactions.given_out import Reading, give_out
from cdc_platform.sources.debezium.transactions.progress import PASSED
from cdc_platform.sources.debezium.transactions.transaction_buffer import TransactionBuffer
from cdc_platform.sources.debezium.transactions.truncates import refuse_truncated
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
        settings: of the stream, as `DebeziumSettings.to_options` makes them.
        cycle: the cycle.
        window: the window of the stream.
        inputs: what the plan says of partitions and states.
        patience_micros: how long a transaction that is not whole may wait.
    """

    settings: str
    cycle: int
    window: ReadWindow
    inputs: str
    patience_micros: int

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the raw records of batches of messages."""
        prepare_worker()
        settings = DebeziumSettings.from_options(self.settings)
        inputs = json.loads(self.inputs)
        ranges = [TopicRange(**fields) for fields in inputs["ranges"]]
        decoder = Decoder(settings, DecoderState.from_json(inputs["state"]))
        buffer = TransactionBuffer(
            is_one_stream=False,
            passed_until=PassedUntil.of(inputs["passed"]),
            patience_micros=self.patience_micros,
            read_micros=self.window.end_inclusive_micros,
        )
        for batch in messages:
            for message in _messages_of(batch):
                origin = f"{message.topic}/{message.partition}"
                decoded = decoder.decode_raw([message])
                micros = message.timestamp_micros or 0
                buffer.take(Arrival(item, origin, message.position, micros) for item in decoded)
        passed = buffer.open_up() if settings.tells_transactions else buffer.let_pass()
        passed = refuse_truncated(settled(passed, decoder))
        progress = {item.origin: _progress(item, passed.resume.get(item.origin)) for item in ranges}
        reading = Reading(
            {item.origin: item.as_file for item in ranges},
            progress,
            decoder.state,
            further={PASSED: passed.until.to_text()},
        )
        yield from give_out(passed, reading, EventBatches(self.cycle), self.window)


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
