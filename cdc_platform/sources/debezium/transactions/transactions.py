"""The arrived part of a transaction, and whether it is complete."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from cdc_platform.model.stream.ordering_key import SEPARATOR
from cdc_platform.sources.debezium.wire.positions import commit_of, has_total_order


class Transaction(msgspec.Struct, gc=False):
    """Messages of a transaction that have arrived.

    ``last_taken`` and ``bounded_at`` are the numbers of messages that had arrived with its last message and
    with its last boundary; 0 for none. ``messages`` counts each of its messages once.
    """

    messages: int = 0
    expected: int | None = None
    since_micros: int | None = None
    first_order: str | None = None
    last_order: str = ""
    commit_lsn: int | None = None
    begun_at: tuple[str, int] | None = None
    last_micros: int = 0
    places: dict[str, int] = msgspec.field(default_factory=dict)
    last_taken: int = 0
    bounded_at: int = 0
    has_events: bool = False
    has_sound_events: bool = False
    has_metadata: bool = False
    """Whether its boundaries, or the orders of its events in it, have been sent."""

    @property
    def is_whole(self) -> bool:
        """Whether the whole transaction has arrived."""
        return self.expected is not None and self.messages >= self.expected

    @property
    def committed_ms(self) -> int:
        """Commit time, from its beginning or its first event; 0 if unknown."""
        return (self.since_micros or 0) // 1000

    @property
    def commit_position(self) -> int:
        """A position up to which all earlier commits have arrived; -1 if unknown."""
        if self.commit_lsn is not None:
            return self.commit_lsn
        return -1 if self.first_order is None else commit_of(self.first_order)

    def shift_places(self, messages: int) -> None:
        """Shift its places by the number of messages in earlier splits."""
        self.last_taken += messages
        self.bounded_at += messages if self.bounded_at else 0

    def take_place(self, origin: str, position: int, number: int, micros: int) -> None:
        """Record the place of one of its messages, or the first position and the last number of several."""
        self.places[origin] = min(self.places.get(origin, position), position)
        self.last_taken = max(self.last_taken, number)
        self.last_micros = max(self.last_micros, micros)

    def take_orders(self, ordering_keys: Sequence[str]) -> None:
        """Record the ordering keys of some of its events."""
        self.has_metadata = self.has_metadata or any(map(has_total_order, ordering_keys))
        # The position of the message, which comes last, changes when it is sent again.
        first, last = (key.rpartition(SEPARATOR)[0] for key in (min(ordering_keys), max(ordering_keys)))
        self.first_order = first if self.first_order is None else min(self.first_order, first)
        self.last_order = max(self.last_order, last)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Boundaries in one stream, in which each transaction ends before the next begins.

    ``reached`` is, for each boundary, the highest position up to which all commits are known, from it or
    from a later one.
    """

    places: Sequence[int]
    reached: Sequence[int]

    @classmethod
    def of(cls, transactions: Collection[Transaction]) -> "Boundaries":
        """Return the boundaries of transactions."""
        pairs = sorted(
            (transaction.bounded_at, transaction.commit_position)
            for transaction in transactions
            if transaction.bounded_at
        )
        reached = accumulate((committed for _, committed in reversed(pairs)), max)
        return cls([place for place, _ in pairs], list(reached)[::-1])

    def show_end_of(self, transaction: Transaction) -> bool:
        """Return whether a transaction is over because a later one has arrived after it.

        A repeated transaction that was committed earlier proves nothing; and if there is nothing to lose, the
        commit order does not matter.
        """
        after = bisect_right(self.places, transaction.last_taken)
        if after == len(self.places):
            return False
        return transaction.first_order is None or self.reached[after] > commit_of(transaction.first_order)
