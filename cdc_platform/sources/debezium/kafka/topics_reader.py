"""Raw records from messages of topics, polled by the pipeline's process or read by Spark's tasks."""

import json
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicProgress, TopicRange
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.splits.decoded_splits import OpenedSplit
from cdc_platform.sources.debezium.splits.outcome import SPLIT, SplitOutcome
from cdc_platform.sources.debezium.splits.release import Release
from cdc_platform.sources.debezium.splits.reports import Reading, report_batches
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.transactions.arrival import Arrival
from cdc_platform.sources.debezium.transactions.passed_until import PassedUntil
from cdc_platform.sources.debezium.transactions.transaction_buffer import Opening, TransactionBuffer
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
class TopicSplitDecoder:
    """Takes the messages of one split, with its number, and returns their rows as `SPLIT_ROWS`.

    Args:
        context: of the cycle.
        state: what earlier cycles have shown, as text.
        ranges: the partitions that are read.
    """

    context: SplitContext
    state: str | None
    ranges: tuple[TopicRange, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the split; none if it has no messages."""
        prepare_worker()
        reader, number = self.reader(), None
        for batch in batches:
            if batch.num_rows:
                number = batch.column(SPLIT)[0].as_py()
                take_messages(reader, batch)
        if number is not None:
            yield from reader.rows(number)

    def reader(self) -> SplitReader:
        """Return a reader that has taken no message yet."""
        return SplitReader(self.context, self.state, {item.origin: item.as_file for item in self.ranges})


class TopicsReading:
    """Reading of the messages of a plan.

    Args:
        settings: of the stream.
        patience_micros: how long a transaction that is not whole may wait.
        cycle: the cycle.
        plan: what it reads.
    """

    def __init__(self, settings: DebeziumSettings, patience_micros: int, cycle: int, plan: ReadPlan) -> None:
        inputs = json.loads(plan.inputs)
        self.ranges = tuple(TopicRange(**fields) for fields in inputs["ranges"])
        self.state: str | None = inputs["state"]
        self.has_metadata = settings.tells_transactions
        window = plan.windows[0]
        self._context = SplitContext(
            settings.without_password().to_options(), cycle, window, is_one_stream=False
        )
        self.buffer = TransactionBuffer(
            is_one_stream=False,
            passed_until=PassedUntil.of(inputs["passed"]),
            patience_micros=patience_micros,
            read_micros=window.end_inclusive_micros,
        )

    @property
    def decoder(self) -> TopicSplitDecoder:
        """What decodes splits of the messages."""
        return TopicSplitDecoder(self._context, self.state, self.ranges)

    def locally(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the raw records of messages, which are in the order of arrival, decoded by this process."""
        reader = self.decoder.reader()
        for batch in batches:
            take_messages(reader, batch)
        split = OpenedSplit.of(reader, self.buffer)
        yield from self.release(split.opening)(split.rows)
        yield from self.reports(split.outcome, split.opening)

    def release(self, opening: Opening) -> Release:
        """Return what makes raw records of the rows of splits."""
        return Release(opening, self.buffer.passed_until.truncated)

    def reports(self, outcome: SplitOutcome, opening: Opening) -> Iterator[pa.RecordBatch]:
        """Yield the reports on what was read."""
        files = {item.origin: item.as_file for item in self.ranges}
        progress = {item.origin: _progress(item, opening.resume.get(item.origin)) for item in self.ranges}
        batches = EventBatches(self._context.cycle)
        return report_batches(Reading(files, progress), outcome, opening, batches, self._context.window)


def take_messages(reader: SplitReader, batch: pa.RecordBatch) -> None:
    """Let a reader take messages."""
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
        yield RawMessage(topic, key, value, _headers(headers), partition, offset, micros, offset)


def _headers(headers: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if headers is None else {item["key"]: item["value"] for item in headers}
