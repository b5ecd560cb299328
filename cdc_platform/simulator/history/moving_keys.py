"""Change stream partitions with mutable key ranges: keys move between partitions that continue.

A partition gives keys to another one, starts a new one with some of its keys, or gives all of them away and
ends. An event at the timestamp of a transaction may come before or after the transaction.

With placements, each partition belongs to one. Keys move between all partitions; a partition announces only
new ones of its own placement, and nothing announces the first one of a new placement.
"""

from bisect import bisect_left
from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from cdc_platform.simulator.history.hours import Interval
from cdc_platform.simulator.history.partitions import SPACE, Moment, Partition, PartitionTree

Placements: TypeAlias = Callable[[int], tuple[str, ...]]
"""Returns the placements at a time; none if partitions have no placements."""


class ChangeKind(Enum):
    """Kind of a partition's record about itself."""

    START = "start"
    """The other partitions begin."""
    MOVE_IN = "move_in"
    """It has keys of the other partitions from this time on."""
    MOVE_OUT = "move_out"
    """The other partitions have keys of it from this time on."""
    END = "end"
    """It ends; there are no other partitions."""


class PartitionChange(NamedTuple):
    """A report of one partition, in the order of events."""

    moment: Moment
    number: int
    partition: Partition
    kind: ChangeKind
    other_tokens: tuple[str, ...]


class MovingKeys(PartitionTree):
    """All partitions of the history so far; at any time the live ones divide the key space.

    A partition may have several ranges of keys.
    """

    def __init__(self, seed: int, origin_micros: int, opening: Interval, placements: Placements) -> None:
        self.changes: list[PartitionChange] = []
        self._alive: list[Partition] = []
        self._placements = placements
        super().__init__(seed, origin_micros, opening)
        first = placements(origin_micros) or ("",)
        for partition in self._partitions:
            partition.placement = first[partition.serial % len(first)]
        self._inhabited = {partition.placement for partition in self._partitions}

    def begin_block(self, start_micros: int, opening: Interval) -> None:
        """Advance to the next block; a new placement starts with one partition without keys."""
        super().begin_block(start_micros, opening)
        for placement in self._placements(start_micros):
            if placement not in self._inhabited:
                self._inhabited.add(placement)
                self._make(SPACE, SPACE, start_micros, (), opening).placement = placement

    def live_at(self, micros: int) -> list[Partition]:
        """Return the partitions with records at a time or later, including one that ends at that time."""
        return [
            partition
            for partition in self._partitions
            if partition.start_micros <= micros
            and (partition.end_micros is None or micros <= partition.end_micros)
        ]

    def changes_between(self, start_micros: int, end_micros: int) -> list[PartitionChange]:
        """Return the changes in `[start_micros, end_micros)`."""
        first, end = (
            bisect_left(self.changes, micros, key=lambda change: change.moment.micros)
            for micros in (start_micros, end_micros)
        )
        return self.changes[first:end]

    @property
    def live_count(self) -> int:
        """The number of partitions alive at the end of the generated history."""
        return len(self._alive)

    def end_next(self, opening: Interval, newest: Moment, next_micros: int | None) -> None:
        """Let the next partition give keys away at its due time, or at the commit before or after that."""
        due_micros, serial = heappop(self._ends)
        partition = self._partitions[serial]
        moment = self._moment(due_micros + self._shift_micros, newest, next_micros)
        surplus, dice = self.live_count - opening.partitions, self._dice.random()
        if (surplus > 0 or (surplus == 0 and dice < 1 / 3)) and self._may_end(partition):
            self._move_all(partition, moment)
            return
        if surplus < 0 or dice < 2 / 3 or self.live_count == 1:
            self._start_within_parent(partition, moment, opening)
        else:
            self._move_part(partition, self._other(partition), moment)
        # It is due again while it has keys; one that gave its last ones away continues without any.
        heappush(self._ends, (due_micros + self._life_micros(opening), serial))

    def _moment(self, due_micros: int, newest: Moment, next_micros: int | None) -> Moment:
        moments = [Moment(due_micros, 0)]
        if newest.micros >= self._shift_micros + self._open_micros:
            moments.append(newest)
        if next_micros is not None:
            moments.append(Moment(next_micros, 0))
        # Never before any earlier event.
        last = self.changes[-1].moment if self.changes else newest
        return max(self._dice.choice(moments), newest, last)

    def _start_within_parent(self, partition: Partition, moment: Moment, opening: Interval) -> None:
        starts = [
            self._make(SPACE, SPACE, moment.micros, (), opening) for _ in range(self._dice.choice((1, 1, 2)))
        ]
        for other in starts:
            other.placement = partition.placement
        self._report(moment, partition, ChangeKind.START, starts)
        for other in starts:
            self._move_part(partition, other, moment)

    def _move_part(self, partition: Partition, other: Partition, moment: Moment) -> None:
        """Move a part of one of a partition's ranges, if it has any."""
        positions = [position for position, owner in enumerate(self._live) if owner is partition]
        if not positions:
            return
        position = self._dice.choice(positions)
        low, high = self._lows[position], (*self._lows, SPACE)[position + 1]
        middle = low + int((high - low) * (0.25 + 0.5 * self._dice.random()))
        if middle > low:
            self._lows.insert(position + 1, middle)
            self._live.insert(position + 1, other)
        else:
            self._live[position] = other
        self._report_move(partition, [other], moment)

    def _move_all(self, partition: Partition, moment: Moment) -> None:
        """Move each range of a partition to some other one, and end the partition."""
        receivers: list[Partition] = []
        for position, owner in enumerate(self._live):
            if owner is partition:
                other = self._other(partition)
                self._live[position] = other
                receivers += [other] if other not in receivers else []
        self._report_move(partition, receivers, moment)
        partition.end_micros = moment.micros
        self._alive.remove(partition)
        self._report(moment, partition, ChangeKind.END, ())

    def _report_move(self, source: Partition, receivers: list[Partition], moment: Moment) -> None:
        if receivers:
            self._report(moment, source, ChangeKind.MOVE_OUT, receivers)
        for receiver in receivers:
            self._report(moment, receiver, ChangeKind.MOVE_IN, [source])
        for position in range(len(self._live) - 1, 0, -1):
            if self._live[position] is self._live[position - 1]:
                del self._lows[position], self._live[position]

    def _report(
        self, moment: Moment, partition: Partition, kind: ChangeKind, opposites: "list[Partition] | tuple[()]"
    ) -> None:
        tokens = tuple(opposite.token for opposite in opposites)
        self.changes.append(PartitionChange(moment, len(self.changes), partition, kind, tokens))

    def _make(
        self, low: int, high: int, micros: int, parents: tuple[Partition, ...], opening: Interval
    ) -> Partition:
        partition = super()._make(low, high, micros, parents, opening)
        self._alive.append(partition)
        return partition

    def _may_end(self, partition: Partition) -> bool:
        """Return whether the partition is not the last one of its placement."""
        return any(other.placement == partition.placement for other in self._alive if other is not partition)

    def _other(self, partition: Partition) -> Partition:
        return self._dice.choice([other for other in self._alive if other is not partition])
