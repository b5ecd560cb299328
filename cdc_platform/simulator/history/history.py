"""The history: transactions block by block, up to the present, and the rows at any time in it."""

import random
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cdc_platform.simulator.history.bank import Bank, Draft
from cdc_platform.simulator.history.hours import BLOCK_MICROS, Interval, OpeningHours
from cdc_platform.simulator.history.moving_keys import MovingKeys, PartitionChange
from cdc_platform.simulator.history.partitions import Moment, PartitionTree, place
from cdc_platform.simulator.history.schema import Schema, Schemas
from cdc_platform.simulator.history.transactions import Change, Key, Row, Transaction, pack, unpack
from cdc_platform.simulator.wire.simulator_settings import PartitionMode, RecordSequences, SimulatorSettings

SAME_TIMESTAMP: Final = 0.05
"""Share of transactions with the timestamp of the previous one, if they have no row in common."""
HIGH_LOW: Final = 0.25
"""Share of transactions whose record sequences are pairs of numbers, in mixed mode."""

_UNPACKED_BLOCKS: Final = 64
_BLOCKS_PER_COPY: Final = 300


@dataclass(frozen=True)
class Block:
    """A second of open hours, with its transactions packed."""

    number: int
    packed: bytes


class History:
    """All events, generated as far as they are requested; safe to use from several threads."""

    def __init__(self, settings: SimulatorSettings, hours: OpeningHours) -> None:
        self.settings, self.hours = settings, hours
        self._is_mixed = settings.record_sequences is RecordSequences.MIXED
        self.origin_micros = hours.origin_micros
        self.schemas = Schemas(settings, self.origin_micros)
        seed_and_hours = settings.seed, self.origin_micros, hours.openings[0]
        self.tree = (
            MovingKeys(*seed_and_hours, placements=lambda micros: self.schemas.at(micros).placements)
            if settings.partition_mode is PartitionMode.MUTABLE_KEY_RANGE
            else PartitionTree(*seed_and_hours)
        )
        self._newest = Moment(0, 0)
        self.transactions = 0
        self._lock = threading.RLock()
        self._dice = random.Random(f"{settings.seed}/history")  # noqa: S311 - simulated, and repeatable
        self._bank = Bank(settings, self.schemas.at(self.origin_micros))
        if settings.preloaded_transfers:
            self._bank.preload(self.schemas.at(self.origin_micros), self.origin_micros)
        self._blocks: list[Block] = []
        self._numbers: list[int] = []
        self._next_block = 0
        self._due = 0.0
        self._unpacked: OrderedDict[int, list[Transaction]] = OrderedDict()
        self._copies: dict[int, dict[int, dict[Key, Row]]] = {}

    def advance(self, now_micros: int) -> None:
        """Generate everything up to a time, and the rest of its block."""
        with self._lock:
            self.hours.keep_open(now_micros)
            last = self.hours.block_of(now_micros)
            if last < self._next_block:
                return
            for number, opening in list(self.hours.blocks(self._next_block, last)):
                self._make(number, opening)
            self._next_block = last + 1

    def blocks(self, first_micros: int, last_micros: int) -> list[int]:
        """Return the numbers of the generated blocks in a time span."""
        first, last = self.hours.block_of(first_micros), self.hours.block_of(last_micros)
        return self._numbers[bisect_left(self._numbers, first) : bisect_right(self._numbers, last)]

    def block(self, number: int) -> list[Transaction]:
        """Return the transactions of a block."""
        with self._lock:
            block = self._unpacked.get(number)
            if block is None:
                block = unpack(self._blocks[bisect_left(self._numbers, number)].packed)
                self._remember(number, block)
            else:
                self._unpacked.move_to_end(number)
            return block

    def partition_changes(self, number: int) -> list[PartitionChange]:
        """Return the changes of partitions in a block; none if partitions only end and have children."""
        if not isinstance(self.tree, MovingKeys):
            return []
        start_micros = self.hours.start_micros(number)
        with self._lock:
            return self.tree.changes_between(start_micros, start_micros + BLOCK_MICROS)

    def serial(self) -> Iterator[Transaction]:
        """Yield the transactions so far in their true order."""
        for number in [*self._numbers]:
            yield from self.block(number)

    def transactions_until(self, micros: int) -> int:
        """Return the number of transactions that were committed up to a generated time."""
        with self._lock:
            to_come = self.blocks(micros, self.hours.start_micros(self._next_block))
            later = sum(
                transaction.commit_micros > micros for number in to_come for transaction in self.block(number)
            )
            return self.transactions - later

    def rows_at(self, table: int, micros: int) -> dict[Key, Row]:
        """Return the rows of a table at a generated time."""
        with self._lock:
            block = self.hours.block_of(micros)
            later = [number for number in self._copies if number > block]
            base = self._copies[min(later)] if later else self._bank.rows
            rows = dict(base.get(table, {}))
            until = min(later) if later else self._next_block
            undone = self.blocks(micros, self.hours.start_micros(until) - 1)
        for number in reversed(undone):
            for transaction in reversed(self.block(number)):
                if transaction.commit_micros <= micros:
                    break
                _undo(rows, table, transaction)
        return rows

    def _make(self, number: int, opening: Interval) -> None:
        if len(self._blocks) % _BLOCKS_PER_COPY == 0:
            self._copies[number] = {table: dict(rows) for table, rows in self._bank.rows.items()}
        start_micros = self.hours.start_micros(number)
        self.tree.begin_block(start_micros, opening)
        transactions = list(self._transactions(start_micros, opening))
        self._move_partitions(start_micros + BLOCK_MICROS, opening)
        self.tree.end_block()
        self._blocks.append(Block(number, pack(transactions)))
        self._numbers.append(number)
        self._remember(number, transactions)
        self.transactions += len(transactions)

    def _transactions(self, start_micros: int, opening: Interval) -> Iterator[Transaction]:
        self._due += opening.rate
        count = int(self._due)
        self._due -= count
        offsets = sorted(int(self._dice.random() * BLOCK_MICROS) for _ in range(count))
        last_micros, used_keys = start_micros, set[tuple[int, Key]]()
        for offset in offsets:
            micros = max(start_micros + offset, last_micros + 1)
            if micros >= start_micros + BLOCK_MICROS:
                return
            may_join = bool(used_keys) and self._dice.random() < SAME_TIMESTAMP
            schema = self.schemas.at(last_micros if may_join else micros)
            draft = self._bank.next_draft(schema, micros)
            keys = {(step.table, step.key) for step in draft.steps}
            if may_join and not keys & used_keys:
                micros, used_keys = last_micros, used_keys | keys
            else:
                self._move_partitions(micros, opening, next_micros=micros)
                used_keys = keys
            is_joined = micros == self._newest.micros
            self._newest = Moment(micros, self._newest.transactions + 1 if is_joined else 1)
            last_micros = micros
            yield self._transaction(draft, micros, schema)

    def _transaction(self, draft: Draft, micros: int, schema: Schema) -> Transaction:
        capacity = self._bank.capacity
        changes = tuple(
            Change(
                step.table,
                step.key,
                int(step.mod),
                step.old,
                step.new,
                step.slots,
                self.tree.locate(place(schema.by_number[step.table].name, step.key, capacity)),
            )
            for step in draft.steps
        )
        identifier = str(self._dice.getrandbits(63))
        # All record forms draw the same random numbers, so the history does not depend on them.
        is_high_low = self._dice.random() < HIGH_LOW and self._is_mixed
        return Transaction(micros, identifier, draft.tag, draft.is_system, is_high_low, changes)

    def _move_partitions(self, until_micros: int, opening: Interval, next_micros: int | None = None) -> None:
        """End the partitions whose end is at or before a time."""
        while True:
            end_micros = self.tree.next_end()
            if end_micros is None or end_micros > until_micros:
                return
            self.tree.end_next(opening, self._newest, next_micros)

    def _remember(self, number: int, transactions: list[Transaction]) -> None:
        self._unpacked[number] = transactions
        if len(self._unpacked) > _UNPACKED_BLOCKS:
            self._unpacked.popitem(last=False)


def _undo(rows: dict[Key, Row], table: int, transaction: Transaction) -> None:
    for change in reversed(transaction.changes):
        if change.table == table:
            if change.old is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.old


Clock = Callable[[], int]
"""Returns microseconds since the epoch, in UTC."""
