"""Partitions as the brokers have them, and messages that they no longer have."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_platform.errors import OffsetsLost

_OTHER_WAY: Final = (
    "Nothing was skipped. To get the rows back, let the connector take a new snapshot of its tables; to "
    "continue without the lost messages, specify the next offset in `input.kafka.start_offsets`"
)

NO_ID: Final = "0" * 32
"""Identity of all topics at brokers before 2.8."""


@dataclass(frozen=True)
class TopicPartition:
    """A partition's state at the brokers.

    Args:
        topic: name of its topic.
        partition: its number.
        topic_id: identity of the topic, which differs for a recreated topic of the same name.
        earliest: offset of the first available message.
        end_exclusive: offset after the last available message.
    """

    topic: str
    partition: int
    topic_id: str
    earliest: int
    end_exclusive: int

    @property
    def origin(self) -> str:
        """Name in the read progress."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True)
class Loss:
    """Messages that a partition no longer has.

    Args:
        origin: name of the partition in the read progress.
        problem: sentence that states what is lost.
        next_offset: offset at which reading may continue.
    """

    origin: str
    problem: str
    next_offset: int


def find_loss(tp: TopicPartition, start: int) -> Loss | None:
    """Return the loss of messages from `start` on; None if the partition has the next ones."""
    if start < tp.earliest:
        problem = (
            f"Messages of the topic {tp.topic}, partition {tp.partition}, were deleted before they were "
            f"read: the next one has offset {start}, the first available one {tp.earliest}, so "
            f"{tp.earliest - start} offsets are lost; check the topic's retention"
        )
        return Loss(tp.origin, problem, tp.earliest)
    if start > tp.end_exclusive:
        problem = (
            f"The topic {tp.topic}, partition {tp.partition}, ends at offset {tp.end_exclusive}, before "
            f"the next message to read, {start}: a broker has lost messages that had been read, see "
            "`unclean.leader.election.enable`"
        )
        return Loss(tp.origin, problem, tp.end_exclusive)
    return None


def check_losses(losses: Iterable[Loss]) -> None:
    """Check that there is no loss.

    Raises:
        OffsetsLost: there is one; the error describes the first, and names the offsets that continue all.
    """
    all_losses = list(losses)
    if not all_losses:
        return
    others = len(all_losses) - 1
    more = f" Messages of {others} more partitions are lost, too." if others else ""
    offsets = ", ".join(f"{loss.origin}: {loss.next_offset}" for loss in all_losses)
    raise OffsetsLost(f"{all_losses[0].problem}.{more} {_OTHER_WAY}, such as `{{{offsets}}}`.")
