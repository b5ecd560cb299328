"""Deals messages out to splits, so that those of a transaction are in one split."""

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.sources.debezium.splits.marked_rows import from_octets, to_octets
from cdc_platform.sources.debezium.splits.outcome import SPLIT, digest

OCTETS: Final = "octets"
DEALT_MESSAGES: Final = pa.schema([(SPLIT, pa.int32()), (OCTETS, pa.binary())])
"""Some messages of a split: Spark moves octets, since single messages cost it more than their decoding."""
DEALT_BYTES: Final = 16 * 1024**2
"""Bytes of messages that a task deals out at once."""
_COLON: Final = r"\s*:\s*"
_CHANGE: Final = re.compile(rf'"(?:__(?:source_)?)?txId"{_COLON}(?P<number>[0-9]+)'.encode())
_CHANGE_SIGN: Final = b'txId"'
"""Part of such a place. In an envelope, and in a flattened message, the source follows the columns."""
_BEFORE, _AFTER = len(b'"__source_'), 64
"""Bytes before and after the start of that part within which the place lies."""
_BOUNDARY: Final = re.compile(
    (
        rf'(?:\A|"payload"{_COLON})\{{\s*"status"{_COLON}"(?:BEGIN|END)"'
        rf'\s*,\s*"id"{_COLON}"(?P<number>[0-9]+):'
    ).encode()
)
_SNAPSHOT_ROW: Final = (
    rf'"snapshot"{_COLON}"(?:true|first|last|first_in_data_collection|last_in_data_collection)"'
)
_TOGETHER: Final = 5_000
"""Offsets of a partition whose snapshot rows go to the same split."""
_PLACE: Final = ("topic", "partition", "offset")
_Place = tuple[str, int]
_ANYWHERE: Final[Mapping[_Place, int]] = {}

_ODD: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1
"""Fibonacci hashing: the upper bits of a product depend on all bits of a number."""


@dataclass(frozen=True)
class MessageDealer:
    """Deals messages out to splits.

    The messages of a transaction belong together, as far as their texts show; a split with only a part of a
    transaction is decoded again together with the others.

    Args:
        splits: maximum number of splits.
        spreads_snapshots: whether the rows of a snapshot may be in several splits.
    """

    splits: int = 1
    spreads_snapshots: bool = False

    def __call__(
        self, batches: Iterable[pa.RecordBatch], starts: Mapping[_Place, int] = _ANYWHERE
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of each split as `DEALT_MESSAGES`.

        Args:
            batches: `MESSAGES`, ordered by offset within a partition.
            starts: the first offset to deal out of each partition; a message before it only shows where a
                tombstone belongs.
        """
        buffer: list[pa.RecordBatch] = []
        waiting_bytes = 0
        last_routes: dict[_Place, str] = {}
        for batch in batches:
            buffer.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= DEALT_BYTES:
                yield self._deal(buffer, starts, last_routes)
                buffer, waiting_bytes = [], 0
        if buffer:
            yield self._deal(buffer, starts, last_routes)

    def _deal(
        self,
        batches: Iterable[pa.RecordBatch],
        starts: Mapping[_Place, int],
        last_routes: MutableMapping[_Place, str],
    ) -> pa.RecordBatch:
        numbers: list[int] = []
        octets: list[bytes] = []
        for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
            splits = self._splits_of(batch, starts, last_routes)
            for number in sorted(pc.unique(splits.drop_null()).to_pylist()):
                numbers.append(number)
                octets.append(to_octets(batch.filter(pc.equal(splits, number))))
        return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), octets], schema=DEALT_MESSAGES)

    def _splits_of(
        self, messages: pa.RecordBatch, starts: Mapping[_Place, int], last_routes: MutableMapping[_Place, str]
    ) -> pa.Array:
        """Return the split of each message, NULL of those before the starts.

        A tombstone goes with the message before it in its partition: with ExtractNewRecordState, that is the
        delete.
        """
        is_tombstone = pc.equal(pc.fill_null(pc.binary_length(messages.column("value")), 0), 0)
        columns = (*(messages.column(name) for name in _PLACE), is_tombstone, self.routes(messages))
        routes: list[str | None] = []
        for topic, partition, offset, follows, own in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            place = topic, partition
            route = last_routes[place] = last_routes.get(place, own) if follows else own
            routes.append(route if offset >= starts.get(place, 0) else None)
        encoded_routes = pa.array(routes, pa.string()).dictionary_encode()
        splits = [_mixed(route) % self.splits for route in encoded_routes.dictionary.to_pylist()]
        return pa.array(splits, pa.int32()).take(encoded_routes.indices)

    def routes(self, messages: pa.RecordBatch) -> pa.Array:
        """Return the text of each message that it shares with those that must be in its split."""
        routes = pa.array(map(_transaction_of, messages.column("value").to_pylist()), pa.string())
        if not self.spreads_snapshots:
            return routes
        values = pc.cast(messages.column("value"), pa.large_binary())
        is_row = pc.fill_null(pc.match_substring_regex(values, _SNAPSHOT_ROW), False)
        numbers = pc.cast(pc.divide(messages.column("offset"), _TOGETHER), pa.string())
        partitions = pc.cast(messages.column("partition"), pa.string())
        of_rows = pc.binary_join_element_wise(messages.column("topic"), partitions, numbers, "/")
        return pc.if_else(is_row, of_rows, routes)


def _transaction_of(value: bytes | None) -> bytes:
    """Return the number of a message's transaction, empty without one."""
    if not value:
        return b""
    place = value.rfind(_CHANGE_SIGN)
    while place >= 0:
        match = _CHANGE.search(value, max(0, place - _BEFORE), place + _AFTER)
        if match:
            return match["number"]
        place = value.rfind(_CHANGE_SIGN, 0, place)
    match = _BOUNDARY.search(value)
    return match["number"] if match else b""


def _mixed(route: str) -> int:
    """Return a number for a route, the same in all processes; similar routes share no remainders."""
    return (int(route) * _ODD & _MASK) >> 32 if route.isdigit() else int.from_bytes(digest(route))


def messages_of(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the `MESSAGES` of `DEALT_MESSAGES`."""
    for block in blocks:
        for octets in block.column(OCTETS):
            yield from from_octets(octets.as_buffer())
