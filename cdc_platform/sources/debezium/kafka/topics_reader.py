"""Raw records of messages in topics, polled by the pipeline's process or read by Spark's tasks."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_platform.model.stream.read_windows import ReadPlan
from cdc_platform.sources.debezium.kafka.message_dealer import DEALT_MESSAGES, MessageDealer, messages_of
from cdc_platform.sources.debezium.kafka.messages import in_order
from cdc_platform.sources.debezium.kafka.topic_consumer import TopicConsumer
from cdc_platform.sources.debezium.kafka.topic_ranges import TopicProgress, TopicRange
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.splits.decoded_splits import (
    DecodedSplits,
    LocalSplits,
    SparkSplits,
    decoded_by_tasks,
    raw_records,
)
from cdc_platform.sources.debezium.splits.outcome import SPLIT, SplitOutcome
from cdc_platform.sources.debezium.splits.release import CycleRows, Release
from cdc_platform.sources.debezium.splits.reports import Reading, report_batches
from cdc_platform.sources.debezium.splits.rounds import joined_outcome, shown_state
from cdc_platform.sources.debezium.splits.split_reader import SplitContext, SplitReader
from cdc_platform.sources.debezium.transactions.progress import PassedUntil
from cdc_platform.sources.debezium.transactions.transaction_buffer import Admission, TransactionBuffer
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.loading import TaskRecords, load_tasks
from cdc_platform.sources.task_plan import TaskPlan

MIN_SPLIT_MESSAGES: Final = 2_000
"""Minimum number of messages per split: a task takes longer to start than to decode fewer."""
MAX_SPLIT_MESSAGES: Final = 32_000
"""Mean number of messages per split, at most: a task holds a split in memory, several times over, but each
further split costs some tenths of a second.
"""
Rows = TypeVar("Rows")


@dataclass(frozen=True)
class TopicSplitDecoder:
    """Decodes the messages of one split into `SPLIT_BLOCKS`.

    Args:
        context: context of the cycle.
        state: findings of earlier cycles, as text.
        ranges: the partitions to read.
    """

    context: SplitContext
    state: str | None
    ranges: tuple[TopicRange, ...]

    def __call__(self, dealt: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of the split that has these `DEALT_MESSAGES`; none if it has no messages."""
        blocks = (batch for batch in dealt if batch.num_rows)
        first = next(blocks, None)
        if first is not None:
            reader = self.reader(messages_of(chain((first,), blocks)))
            yield from reader.blocks(first.column(SPLIT)[0].as_py())

    def reader(self, batches: Iterable[pa.RecordBatch] = ()) -> SplitReader:
        """Return a reader that has taken `MESSAGES`."""
        files = {item.origin: item.as_file for item in self.ranges}
        reader = SplitReader(self.context, self.state, files)
        for message in in_order(batches):
            origin = f"{message.topic}/{message.partition}"
            reader.take(message, origin, message.position, message.timestamp_micros or 0)
        return reader


class TopicsReading:
    """Reading of the messages of a plan.

    Args:
        settings: settings of the stream.
        kafka: settings of its topics.
        cycle: the cycle.
        plan: the plan of the cycle.
    """

    def __init__(self, settings: DebeziumSettings, kafka: KafkaInput, cycle: int, plan: ReadPlan) -> None:
        inputs, window = plan.inputs, plan.windows[0]
        self.ranges: tuple[TopicRange, ...] = inputs["ranges"]
        self._kafka = kafka
        self._state: str | None = inputs["state"]
        self._has_metadata = settings.has_transaction_metadata
        options = settings.without_password().to_options()
        self._context = SplitContext(options, cycle, window, is_one_stream=False)
        self._buffer = TransactionBuffer(
            is_one_stream=False,
            passed_until=PassedUntil.of(inputs["passed"]),
            patience_micros=int(kafka.transaction_patience_s * 1_000_000),
            read_micros=window.end_inclusive_micros,
        )

    def decoder(self, state: str | None) -> TopicSplitDecoder:
        """Return the decoder of splits of the messages, from the findings of earlier ones, as text."""
        return TopicSplitDecoder(self._context, state, self.ranges)

    def splits(self, tasks: int) -> int:
        """Return the number of splits into which tasks deal the messages."""
        return max(tasks, -(-self._messages // MAX_SPLIT_MESSAGES))

    @property
    def _messages(self) -> int:
        return sum(item.end_exclusive - item.start for item in self.ranges)

    def dealer(self, splits: int) -> MessageDealer:
        """Return what deals messages out to splits; a snapshot that replaces tables is one transaction."""
        return MessageDealer(splits, spreads_snapshots=not self._start.snapshots.servers)

    @cached_property
    def _start(self) -> DecoderState:
        return DecoderState.from_json(self._state)

    def locally(self, messages: Sequence[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the raw records of `MESSAGES`, decoded by this process."""

        def decode(_splits: int, state: str | None) -> LocalSplits:
            return LocalSplits(pa.Table.from_batches(self.decoder(state).reader(messages).blocks()))

        rows = self.read(decode, 1)
        for blocks in rows.splits:
            yield from rows.release(blocks)
        yield from rows.reports

    def by_tasks(self, spark: SparkSession, max_tasks: int, frames: ExitStack) -> TaskRecords:
        """Return the raw records of the messages of the plan, read and decoded by tasks.

        Args:
            spark: session whose tasks share the messages.
            max_tasks: maximum number of tasks.
            frames: ends when the records have been committed.
        """
        if not self.ranges:
            return TaskRecords(spark.range(0), iter, list(self.locally(())))
        # So many are worth their start, to read messages or to decode them.
        tasks = max(1, min(max_tasks, self._messages // MIN_SPLIT_MESSAGES))

        def decode(splits: int, state: str | None) -> SparkSplits:
            parts = deal_ranges(self.ranges, tasks)
            messages = read_messages(spark, self._kafka, parts, self.dealer(splits))
            return decoded_by_tasks(messages, self.decoder(state), frames)

        return raw_records(self.read(decode, self.splits(tasks)))

    def read(self, decode: Callable[[int, str | None], DecodedSplits[Rows]], splits: int) -> CycleRows[Rows]:
        """Read the messages.

        Args:
            decode: decodes the messages, divided into this many splits, from a state, as text; splits without
                messages are omitted.
            splits: number of splits to try; if they are not independent of each other, which is rare, one
                task decodes all messages.
        """
        decoded_splits, outcome = self._decoded(decode, splits)
        if outcome is None and decoded_splits.outcomes:
            decoded_splits, outcome = self._decoded(decode, 1)
        if outcome is None:
            outcome = self.decoder(self._state).reader().outcome()
        admission = outcome.admission(self._buffer, has_metadata=self._has_metadata)
        if admission.limit is not None:
            outcome, admission = outcome.without_waiting(admission, decoded_splits.free_rows())
        release = Release(admission, self._buffer.passed_until.truncated)
        return CycleRows([decoded_splits.blocks()], release, list(self._reports(outcome, admission)))

    def _decoded(
        self, decode: Callable[[int, str | None], DecodedSplits[Rows]], splits: int
    ) -> tuple[DecodedSplits[Rows], SplitOutcome | None]:
        """Decode splits, twice if they show what some of them depend on; the outcome as `joined_outcome`."""
        decoded_splits = decode(splits, self._state)
        state = shown_state(decoded_splits.outcomes, self._state)
        if state is None:
            return decoded_splits, joined_outcome(decoded_splits.outcomes, self._state)
        decoded_splits = decode(splits, state)
        return decoded_splits, joined_outcome(decoded_splits.outcomes, state)

    def _reports(self, outcome: SplitOutcome, admission: Admission) -> Iterator[pa.RecordBatch]:
        files = {item.origin: item.as_file for item in self.ranges}
        progress = {item.origin: _progress(item, admission.resume.get(item.origin)) for item in self.ranges}
        batches = EventBatches(self._context.cycle)
        return report_batches(Reading(files, progress), outcome, admission, batches, self._context.window)


def _progress(topic_range: TopicRange, resume: int | None) -> str:
    next_offset = topic_range.end_exclusive if resume is None else resume
    return TopicProgress(topic_range.topic_id, next_offset, topic_range.end_exclusive).to_text()


def deal_ranges(ranges: Sequence[TopicRange], max_tasks: int) -> list[tuple[TopicRange, ...]]:
    """Cut ranges, and return those of each task, which have about the same number of offsets."""
    offsets = sum(item.end_exclusive - item.start for item in ranges)
    share = max(1, -(-offsets // max_tasks))
    tasks: list[list[TopicRange]] = [[]]
    space = share
    for item in ranges:
        rest = item
        while not rest.is_empty:
            if not space:
                tasks.append([])
                space = share
            end_exclusive = min(rest.end_exclusive, rest.start + space)
            tasks[-1].append(replace(rest, end_exclusive=end_exclusive))
            space -= end_exclusive - rest.start
            rest = replace(rest, start=end_exclusive, is_rest=True)
    return [tuple(task) for task in tasks]


def read_messages(
    spark: SparkSession, settings: KafkaInput, parts: Sequence[Sequence[TopicRange]], dealer: MessageDealer
) -> DataFrame:
    """Return messages as `DEALT_MESSAGES`, one split per task.

    Args:
        spark: Spark session.
        settings: settings of the topics.
        parts: the ranges that each task reads, before their messages are dealt out.
        dealer: deals messages out to splits.
    """
    plan = TaskPlan(DEALT_MESSAGES, partial(_read_dealt, settings, dealer), parts)
    return load_tasks(spark, plan).repartitionById(dealer.splits, SPLIT)


def _read_dealt(
    settings: KafkaInput, dealer: MessageDealer, ranges: Sequence[TopicRange]
) -> Iterator[pa.RecordBatch]:
    # A tombstone goes with the message before it.
    ranges_read = [item.after(item.start - item.is_rest) for item in ranges]
    starts = {(item.topic, item.partition): item.start for item in ranges}
    return dealer(TopicConsumer(settings, ranges_read).batches(), starts)
