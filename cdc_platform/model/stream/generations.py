"""Child partitions that are announced and read within one read."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, PartitionState
from cdc_platform.model.stream.read_windows import ReadWindow

MAX_DESCENDANTS: Final = 1_000
"""Maximum number of children that one read follows; the next read takes the rest."""


@dataclass(frozen=True)
class PartitionEnd:
    """The end of a complete read of a partition, and the children that the partition announced until then."""

    token: str
    end_inclusive_micros: int
    children: tuple[ChildAnnouncement, ...]


class Generations:
    """Finds the children with which a read can continue, each once and after all its parents.

    If another read reads one of its parents, the child is left to the next read. Not thread-safe.
    """

    def __init__(self, end_inclusive_micros: int, finished_parents: Iterable[str]) -> None:
        """Start with the partitions that earlier reads finished.

        Args:
            end_inclusive_micros: the end of the read.
            finished_parents: tokens of partitions that ended before this read; see `finished_parents`.
        """
        self._end_micros = end_inclusive_micros
        self._finished = set(finished_parents)
        self._ends: dict[str, int] = {}
        self._waiting: dict[str, ChildAnnouncement] = {}
        self._tokens: set[str] = set()
        self._followed = 0

    def begin(self, tokens: Iterable[str]) -> None:
        """Add the partitions of the read itself: an announcement of one of them is a repetition."""
        self._tokens.update(tokens)

    def after(self, end: PartitionEnd) -> list[ReadWindow]:
        """Return the windows of the children that can be read once a partition has reached an end."""
        self._ends[end.token] = end.end_inclusive_micros
        for child in end.children:
            if child.start_micros <= end.end_inclusive_micros + 1 and child.token not in self._tokens:
                self._waiting[child.token] = child
        ready = [child for child in self._waiting.values() if self._may_start(child)]
        return [
            self._window_of(child)
            for child in ready[: MAX_DESCENDANTS - self._followed]
            if child.start_micros <= self._end_micros
        ]

    def _may_start(self, child: ChildAnnouncement) -> bool:
        """Return whether each parent has been read; one that the child continues, not beyond its start."""
        limit_micros = child.start_micros if child.continues_parents else self._end_micros + 1
        return all(
            parent in self._finished or self._ends.get(parent, limit_micros) < limit_micros
            for parent in child.parent_tokens
        )

    def _window_of(self, child: ChildAnnouncement) -> ReadWindow:
        del self._waiting[child.token]
        self._tokens.add(child.token)
        self._followed += 1
        return ReadWindow(child.token, child.start_micros - 1, self._end_micros)


def finished_parents(lineage: Lineage) -> tuple[str, ...]:
    """Return the finished partitions with a child that waits for another parent."""
    children = (
        partition for partition in lineage.partitions.values() if partition.state is PartitionState.CREATED
    )
    parents = {token for child in children for token in child.parent_tokens}
    return tuple(sorted(t for t in parents if t in lineage.partitions and lineage.partitions[t].is_finished))
