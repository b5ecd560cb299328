"""The records of each partition, block by block."""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, TypeAlias

from cdc_platform.simulator.history.history import History
from cdc_platform.simulator.history.partitions import Partition
from cdc_platform.simulator.stream.messages import PartitionRow, block_messages
from cdc_platform.simulator.stream.records import data_records, record_writer
from cdc_platform.simulator.wire.simulator_settings import PartitionMode

StreamRow: TypeAlias = tuple[int, bytes]
"""Timestamp and record, as the value of a row."""

_CACHED_BYTES: Final = 192 * 1024 * 1024


class Deliveries:
    """The records of every partition; those of a block are created when the first reader needs them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._write = record_writer(history.settings.dialect)
        self._has_messages = history.settings.partition_mode is PartitionMode.MUTABLE_KEY_RANGE
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, dict[int, list[StreamRow]]] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._bytes = 0

    def records(self, partition: Partition, first_micros: int, last_micros: int) -> Iterator[list[StreamRow]]:
        """Yield the records of a time span, inclusive at both ends, in the order of their timestamps."""
        for number in self._history.blocks(first_micros, last_micros):
            delivery = self._block(number).get(partition.serial)
            if delivery:
                begin = bisect_left(delivery, (first_micros,))
                end = bisect_left(delivery, (last_micros + 1,))
                if begin < end:
                    yield delivery[begin:end]

    def _block(self, number: int) -> dict[int, list[StreamRow]]:
        with self._lock:
            block = self._blocks.get(number)
            if block is not None:
                self._blocks.move_to_end(number)
                return block
            block = self._rows_by_partition(number)
            self._blocks[number] = block
            self._sizes[number] = sum(len(row) for rows in block.values() for _, row in rows)
            self._bytes += self._sizes[number]
            while self._bytes > _CACHED_BYTES and len(self._blocks) > 1:
                oldest, _ = self._blocks.popitem(last=False)
                self._bytes -= self._sizes.pop(oldest)
            return block

    def _rows_by_partition(self, number: int) -> dict[int, list[StreamRow]]:
        by_partition: dict[int, list[StreamRow]] = {}
        rows = block_messages(self._history, number) if self._has_messages else self._partition_rows(number)
        for partition, micros, row in rows:
            by_partition.setdefault(partition, []).append((micros, row))
        return by_partition

    def _partition_rows(self, number: int) -> Iterator[PartitionRow]:
        schemas, write = self._history.schemas, self._write
        for transaction in self._history.block(number):
            for record in data_records(transaction, schemas.at(transaction.commit_micros)):
                yield record.changes[0].partition, transaction.commit_micros, write(record)
