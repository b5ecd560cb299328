"""Generations of partitions that one read goes through: children of partitions that end within it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.lineage import ChildAnnouncement, Lineage, PartitionState
from cdc_platform.model.slices import Slice

MOST_FOLLOWED: Final = 1_000
"""So many children at most are read with their parents; others are left to the next read."""


@dataclass(frozen=True)
class PartitionEnd:
    """A partition that was read to its end, and the children that continue it right after it."""

    token: str
    end_inclusive_micros: int
    children: tuple[ChildAnnouncement, ...]


class Generations:
    """Finds the children that a read can go on with, each once and after all its parents.

    A child whose other parent is read elsewhere is left to the next read. Not safe for several threads.
    """

    def __init__(self, end_inclusive_micros: int, finished_parents: Iterable[str]) -> None:
        """Begin with what earlier reads finished.

        Args:
            end_inclusive_micros: where the read ends.
            finished_parents: tokens of partitions that had ended before; see `finished_parents`.
        """
        self._end_micros = end_inclusive_micros
        self._finished = set(finished_parents)
        self._waiting: dict[str, ChildAnnouncement] = {}
        self._followed: set[str] = set()

    def after(self, end: PartitionEnd) -> list[Slice]:
        """Return the slices of the children that can be read now that a partition has ended."""
        self._finished.add(end.token)
        for child in end.children:
            if child.start_micros == end.end_inclusive_micros + 1 and child.token not in self._followed:
                self._waiting[child.token] = child
        ready = [child for child in self._waiting.values() if self._finished.issuperset(child.parent_tokens)]
        return [
            self._slice_of(child)
            for child in ready[: MOST_FOLLOWED - len(self._followed)]
            if child.start_micros <= self._end_micros
        ]

    def _slice_of(self, child: ChildAnnouncement) -> Slice:
        del self._waiting[child.token]
        self._followed.add(child.token)
        return Slice(child.token, child.start_micros - 1, self._end_micros)


def finished_parents(lineage: Lineage) -> tuple[str, ...]:
    """Return the partitions that have ended, and of which a child waits for its other parents."""
    waiting = (found for found in lineage.partitions.values() if found.state is PartitionState.CREATED)
    parents = {token for child in waiting for token in child.parent_tokens}
    return tuple(sorted(t for t in parents if t in lineage.partitions and lineage.partitions[t].is_finished))
