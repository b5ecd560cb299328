"""Ranges of messages that a cycle reads, and their progress as in the read progress."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final

from cdc_platform.errors import OffsetsLost, SourceNotFound
from cdc_platform.model.base.stored_names import READ_PROGRESS
from cdc_platform.model.base.stored_texts import parse_stored, read_stored
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.sources.debezium.kafka.topic_partition import (
    NO_ID,
    Loss,
    TopicPartition,
    check_losses,
    find_loss,
)
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.transactions.progress import Place

_AHEAD_MILLIS: Final = 3_600_000
"""Milliseconds by which clocks of producers may be ahead; newer brokers refuse messages beyond."""
OffsetsAfter = Callable[[int], Mapping[str, int]]
"""Returns the offset of the first message of each partition that was sent after a moment, in milliseconds.

Partitions without such a message are missing.
"""


@dataclass(frozen=True)
class TopicProgress:
    """Read progress of a partition.

    Args:
        topic_id: id of the topic that was read.
        next_offset: messages before it have entered the log.
        seen_exclusive: messages before it have been read; those from `next_offset` on belong to incomplete
            transactions, and are read again with the new messages.
    """

    topic_id: str
    next_offset: int
    seen_exclusive: int

    @classmethod
    def of(cls, text: str) -> "TopicProgress":
        """Parse the progress from a text of the read progress.

        Raises:
            ValueError, RecursionError: the text has another form.
        """
        return cls(*parse_stored(text, tuple[str, Place, Place]))

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        return json.dumps(astuple(self))


@dataclass(frozen=True)
class TopicRange:
    """Messages of a partition, from `start` on; those before `seen` are read again.

    ``is_rest`` says that another task reads the messages of the partition before these.
    """

    topic: str
    partition: int
    topic_id: str
    start: int
    seen: int
    end_exclusive: int
    is_rest: bool = False

    @property
    def origin(self) -> str:
        """Name of the partition in the read progress."""
        return f"{self.topic}/{self.partition}"

    @property
    def is_empty(self) -> bool:
        """Whether the range has no offsets."""
        return self.start >= self.end_exclusive

    @property
    def new_messages(self) -> int:
        """Number of offsets that have not been read."""
        return self.end_exclusive - self.seen

    def until(self, offset: int) -> "TopicRange":
        """Return the range without unread messages from an offset on."""
        return replace(self, end_exclusive=min(self.end_exclusive, max(self.seen, offset)))

    def after(self, start: int) -> "TopicRange":
        """Return the range without the messages before an offset."""
        return replace(self, start=start)

    @property
    def as_file(self) -> SourceFile:
        """The partition in the form in which reports name what was read."""
        return SourceFile(self.origin, self.topic, 0, 0, self.topic_id)


def first_messages(tp: TopicPartition, limit: int) -> TopicRange:
    """Return the range of the first messages of a partition, at most ``limit``."""
    end_exclusive = min(tp.end_exclusive, tp.earliest + limit)
    return TopicRange(tp.topic, tp.partition, tp.topic_id, tp.earliest, tp.earliest, end_exclusive)


def plan_ranges(
    partitions: Sequence[TopicPartition],
    read_progress: Mapping[str, str],
    settings: KafkaInput,
    offsets_after: OffsetsAfter,
    now_millis: int,
) -> tuple[TopicRange, ...]:
    """Return the ranges of the next cycle; none without new messages.

    They include empty ones of partitions that are left to later cycles.

    Raises:
        SourceNotFound: no topic matches the settings.
        OffsetsLost: the next messages are gone, or a topic is.
    """
    progress = _stored_progress(read_progress, settings)
    _check_topics(partitions, progress, settings)
    read_topics = {_topic_of(origin) for origin in progress}
    ranges = [
        _begin(tp, progress.get(tp.origin), settings.start_offsets.get(tp.origin), tp.topic in read_topics)
        for tp in partitions
    ]
    losses = [
        _find_recreation(tp, progress.get(tp.origin), settings) or find_loss(tp, topic_range.start)
        for tp, topic_range in zip(partitions, ranges, strict=True)
    ]
    check_losses(filter(None, losses))
    parts: Sequence[TopicRange] = ranges
    if _new_messages(ranges) > settings.max_messages:
        parts = _first_messages(ranges, settings.max_messages, offsets_after, now_millis + _AHEAD_MILLIS)
    if not _new_messages(parts):
        return ()
    return tuple(
        part
        for part, whole in zip(parts, ranges, strict=True)
        if part.start < part.end_exclusive or part.end_exclusive < whole.end_exclusive
    )


def _new_messages(ranges: Iterable[TopicRange]) -> int:
    return sum(topic_range.new_messages for topic_range in ranges)


def _first_messages(
    ranges: Sequence[TopicRange], limit: int, offsets_after: OffsetsAfter, latest_millis: int
) -> Sequence[TopicRange]:
    """Return the ranges up to one moment, with at most a number of new messages, and more than none.

    All partitions end at the same moment, so no cycle reads a change before a row that a snapshot has sent
    to another partition, as where partitions were added in between. Messages of one moment, or without any,
    are read in equal shares. A partition with a message later than any was sent has no moments.
    """
    few: Sequence[TopicRange] = [topic_range.until(0) for topic_range in ranges]
    many, first, last = ranges, -1, latest_millis
    whole = dict.fromkeys(offsets_after(latest_millis), 2**63)
    while last - first > 1:
        middle = (first + last) // 2
        offsets = {**offsets_after(middle), **whole}
        parts = [item.until(offsets.get(item.origin, item.end_exclusive)) for item in ranges]
        if _new_messages(parts) > limit:
            many, last = parts, middle
        else:
            few, first = parts, middle
            if 2 * _new_messages(parts) > limit:
                break
    if _new_messages(few):
        return few
    share = limit / _new_messages(many)
    return [item.until(item.seen + max(1, int(item.new_messages * share))) for item in many]


def first_left(partitions: Sequence[TopicPartition], ranges: Sequence[TopicRange]) -> tuple[TopicRange, ...]:
    """Return the first message of each partition that the ranges of a cycle leave to the next one."""
    ends = {tp.origin: tp.end_exclusive for tp in partitions}
    return tuple(
        replace(item, start=item.end_exclusive, seen=item.end_exclusive, end_exclusive=item.end_exclusive + 1)
        for item in ranges
        if item.end_exclusive < ends[item.origin]
    )


def _stored_progress(read_progress: Mapping[str, str], settings: KafkaInput) -> dict[str, TopicProgress]:
    """Return the progress of the topics' partitions within the read progress."""
    places = {origin: origin.rpartition("/") for origin in read_progress}
    return {
        origin: read_stored(TopicProgress.of, read_progress[origin], READ_PROGRESS, f"row `{origin}`")
        for origin, (topic, _, partition) in places.items()
        if partition.isdecimal() and settings.matches(topic)
    }


def _check_topics(
    partitions: Sequence[TopicPartition], progress: Mapping[str, TopicProgress], settings: KafkaInput
) -> None:
    if not partitions:
        raise SourceNotFound(
            "No topic matches the setting `input.kafka.topics_pattern`, which has to match whole "
            f"names: {settings.topics_pattern}"
        )
    gone = {origin: progress[origin] for origin in sorted(progress.keys() - {tp.origin for tp in partitions})}
    # A recreated topic may have fewer partitions: those that it has show whether the others are given up.
    continued = {*progress, *settings.start_offsets}
    topic_ids = {tp.topic: tp.topic_id for tp in partitions if tp.origin in continued}
    without_offset = {tp.topic for tp in partitions if tp.origin not in settings.start_offsets}
    unknown = [
        origin
        for origin, place in gone.items()
        if (topic_id := topic_ids.get(_topic_of(origin))) in {None, place.topic_id}
        and (topic_id != NO_ID or _topic_of(origin) in without_offset)
    ]
    if unknown:
        raise OffsetsLost(
            f"The partition {unknown[0]} is gone, with the messages since the last cycle. If its topic was "
            "deleted on purpose, remove it from `input.kafka.topics_pattern`, such as by `(?!TOPIC$).*`. If "
            "it was recreated with fewer partitions, specify the next offset of each that it has in "
            f"`input.kafka.start_offsets`, such as `TOPIC/0: 0`. Gone: {', '.join(unknown)}"
        )


def _topic_of(origin: str) -> str:
    return origin.rpartition("/")[0]


def _find_recreation(tp: TopicPartition, progress: TopicProgress | None, settings: KafkaInput) -> Loss | None:
    """Return the loss of a partition of a recreated topic; None for others, and if it is given up."""
    if progress is None or progress.topic_id == tp.topic_id or tp.origin in settings.start_offsets:
        return None
    problem = (
        f"The topic {tp.topic} was deleted and recreated. The lake has the old topic's messages before "
        f"offset {progress.next_offset} of partition {tp.partition}; the new topic's messages begin at "
        f"{tp.earliest}"
    )
    return Loss(tp.origin, problem, tp.earliest)


def _begin(
    tp: TopicPartition, progress: TopicProgress | None, start_offset: int | None, is_topic_known: bool
) -> TopicRange:
    """Return the range of all messages of a partition that are to be read."""
    if progress is None:
        # A new partition of a known topic must be read from its beginning.
        start = newest = 0 if is_topic_known else tp.earliest
    elif start_offset is not None and (
        progress.topic_id != tp.topic_id or start_offset <= tp.end_exclusive < progress.next_offset
    ):
        start = newest = start_offset
    else:
        start, newest = progress.next_offset, progress.seen_exclusive
    start = max(start, start_offset or 0)
    return TopicRange(tp.topic, tp.partition, tp.topic_id, start, max(newest, start), tp.end_exclusive)
