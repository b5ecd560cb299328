"""Change stream partitions: ranges of a key space that split, merge and move while the bank is open."""

import random
from base64 import urlsafe_b64encode
from bisect import bisect_right, insort
from dataclasses import dataclass, field
from hashlib import sha512
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from cdc_platform.simulator.history.hours import BLOCK_MICROS, Interval
from cdc_platform.simulator.history.schema import ACCOUNTS, ALL_TYPES, DOCUMENTS
from cdc_platform.simulator.history.transactions import Key

SPACE: Final = 1 << 32
"""Size of the key space of all tables."""
_NARROWEST: Final = 1 << 12


class Moment(NamedTuple):
    """A commit timestamp, and the number of transactions with it that come before the moment."""

    micros: int
    transactions: int


@dataclass
class Partition:
    """Keys `[low, high)` from `start_micros` until just before `end_micros`, at which its children start.

    `placement` is the placement whose read function returns its records; empty without placements.
    """

    serial: int
    token: str
    low: int
    high: int
    start_micros: int
    parents: tuple[str, ...]
    end_micros: int | None = None
    children: list["Partition"] = field(default_factory=list)
    placement: str = ""


class PartitionTree:
    """All partitions of the history so far; at any time the live ones divide the key space."""

    def __init__(self, seed: int, origin_micros: int, opening: Interval) -> None:
        self._seed, self._origin_micros = seed, origin_micros
        self._dice = random.Random(f"{seed}/partitions")  # noqa: S311 - simulated, and repeatable
        self._partitions: list[Partition] = []
        self._by_token: dict[str, Partition] = {}
        self._lows: list[int] = []
        self._live: list[Partition] = []
        self._ends: list[tuple[int, int]] = []
        # Open time so far, and the clock's lead over it: partitions do not age while the bank is closed.
        self._open_micros, self._shift_micros = 0, origin_micros
        lows = [SPACE * number // opening.partitions for number in range(opening.partitions + 1)]
        for low, high in pairwise(lows):
            self._start(low, high, origin_micros, (), opening)

    def find(self, token: str) -> Partition | None:
        """Return the partition with a token."""
        return self._by_token.get(token)

    def serial(self, serial: int) -> Partition:
        """Return the partition with a serial number."""
        return self._partitions[serial]

    def first_of(self, placement: str) -> list[Partition]:
        """Return the first partition of a placement, in a list; none if it has no partition."""
        return [partition for partition in self._partitions if partition.placement == placement][:1]

    def live_at(self, micros: int) -> list[Partition]:
        """Return the live partitions at a time, in the order of their keys."""
        partitions = [
            partition
            for partition in self._partitions
            if partition.start_micros <= micros
            and (partition.end_micros is None or micros < partition.end_micros)
        ]
        return sorted(partitions, key=lambda partition: partition.low)

    @property
    def live_count(self) -> int:
        """The number of partitions alive at the end of the generated history."""
        return len(self._live)

    def locate(self, place: int) -> int:
        """Return the serial number of the live partition of a place."""
        return self._live[bisect_right(self._lows, place) - 1].serial

    def begin_block(
        self,
        start_micros: int,
        opening: Interval,  # noqa: ARG002 - only partitions in placements begin with a block
    ) -> None:
        """Advance to the next block of open hours."""
        self._shift_micros = start_micros - self._open_micros

    def next_end(self) -> int | None:
        """Return when the next partition of the block ends; None if no more do."""
        while self._ends and self._partitions[self._ends[0][1]].end_micros is not None:
            heappop(self._ends)
        if not self._ends or self._ends[0][0] >= self._open_micros + BLOCK_MICROS:
            return None
        return self._ends[0][0] + self._shift_micros

    def end_next(
        self,
        opening: Interval,
        newest: Moment,  # noqa: ARG002 - children start when they are due
        next_micros: int | None,  # noqa: ARG002 - only partitions that continue look ahead
    ) -> None:
        """End the next partition, and start its children.

        Args:
            opening: the open hours.
            newest: the moment right after the newest transaction.
            next_micros: when the next one commits; None if not in the block.
        """
        due_micros, serial = heappop(self._ends)
        self._end(self._partitions[serial], due_micros + self._shift_micros, opening)

    def end_block(self) -> None:
        """Count a block of open hours."""
        self._open_micros += BLOCK_MICROS

    def _end(self, partition: Partition, micros: int, opening: Interval) -> None:
        surplus = len(self._live) - opening.partitions
        dice = self._dice.random()
        neighbour = self._neighbour(partition, micros)
        if (surplus > 0 or (surplus == 0 and dice < 1 / 3)) and neighbour is not None:
            self._merge(partition, neighbour, micros, opening)
        elif (surplus < 0 or dice < 2 / 3) and partition.high - partition.low > _NARROWEST:
            self._split(partition, micros, opening)
        else:
            self._stop(partition, micros)
            self._start(partition.low, partition.high, micros, (partition,), opening)

    def _neighbour(self, partition: Partition, micros: int) -> Partition | None:
        position = bisect_right(self._lows, partition.low) - 1
        around = self._live[position + 1 : position + 2] + self._live[max(position - 1, 0) : position]
        # A partition that has just begun would have had no duration.
        return next((other for other in around if other.start_micros < micros), None)

    def _merge(self, first: Partition, other: Partition, micros: int, opening: Interval) -> None:
        self._stop(first, micros)
        self._stop(other, micros)
        parents = (first, other) if first.low < other.low else (other, first)
        self._start(parents[0].low, parents[1].high, micros, parents, opening)

    def _split(self, partition: Partition, micros: int, opening: Interval) -> None:
        self._stop(partition, micros)
        # Not in the middle: some ranges become hot, others idle.
        share = 0.25 + 0.5 * self._dice.random()
        middle = partition.low + max(1, int((partition.high - partition.low) * share))
        self._start(partition.low, middle, micros, (partition,), opening)
        self._start(middle, partition.high, micros, (partition,), opening)

    def _stop(self, partition: Partition, micros: int) -> None:
        partition.end_micros = micros
        position = bisect_right(self._lows, partition.low) - 1
        del self._lows[position], self._live[position]

    def _start(
        self, low: int, high: int, micros: int, parents: tuple[Partition, ...], opening: Interval
    ) -> None:
        partition = self._make(low, high, micros, parents, opening)
        insort(self._lows, low)
        self._live.insert(bisect_right(self._lows, low) - 1, partition)

    def _make(
        self, low: int, high: int, micros: int, parents: tuple[Partition, ...], opening: Interval
    ) -> Partition:
        serial = len(self._partitions)
        digest = sha512(f"{self._seed}/{self._origin_micros}/{serial}".encode()).digest()
        token = urlsafe_b64encode(digest).decode().rstrip("=")
        partition = Partition(serial, token, low, high, micros, tuple(parent.token for parent in parents))
        for parent in parents:
            parent.children.append(partition)
        self._partitions.append(partition)
        self._by_token[token] = partition
        heappush(self._ends, (micros - self._shift_micros + self._life_micros(opening), serial))
        return partition

    def _life_micros(self, opening: Interval) -> int:
        return int(opening.partition_life_s * (1 + self._dice.random()) * 1_000_000)


_REGIONS: Final = 8
"""Accounts have the first three eighths, transfers the next three, and all other tables the rest."""
_SHARE: Final = SPACE // _REGIONS


def place(table: str, key: Key, capacity: int) -> int:
    """Return the place of a key, which does not decrease with the key within a table."""
    first = key[0]
    if table.startswith(ACCOUNTS):
        return int(3 * _SHARE * first) // capacity
    if table == ALL_TYPES:
        return 6 * _SHARE + int(first) * _SHARE // 1000
    if table == DOCUMENTS:
        return 7 * _SHARE + int(first) * _SHARE // 1000
    fraction = int(first[:8], 16)
    if table.startswith("transfers"):
        return 3 * _SHARE + fraction * 3 * _SHARE // SPACE
    return 7 * _SHARE + fraction * _SHARE // SPACE
