"""A transaction as far as its events have arrived, and whether it is whole."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

from cdc_platform.model.stream.ordering_key import SEPARATOR
from cdc_platform.sources.debezium.rows.checkpoints import Decoded
from cdc_platform.sources.debezium.wire.positions import commit_of, has_total_order


class Arrival(msgspec.Struct, frozen=True):
    """Content of one message, and its place: which file or partition, and how far in it.

    ``micros`` is when it was sent, where messages of several partitions come in one stream.
    """

    event: Decoded
    origin: str
    position: int
    micros: int = 0


@dataclass(slots=True)
class Transaction:
    """Messages of a transaction that have arrived.

    ``last_taken`` and ``bounded_at`` say how many messages had arrived with the last of its own, and
    with the last of its boundaries; 0 for none. ``messages`` counts each of its messages once.
    """

    messages: int = 0
    expected: int | None = None
    since_micros: int | None = None
    first_order: str | None = None
    last_order: str = ""
    commit_lsn: int | None = None
    begun_at: tuple[str, int] | None = None
    last_micros: int = 0
    places: dict[str, int] = field(default_factory=dict)
    last_taken: int = 0
    bounded_at: int = 0
    has_events: bool = False
    has_sound_events: bool = False
    has_metadata: bool = False
    """Whether its boundaries, or its events' orders in it, were sent: from some moment on, or never."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it has arrived."""
        return self.expected is not None and self.messages >= self.expected

    @property
    def committed_ms(self) -> int:
        """When it was committed, by its beginning or its first event; 0 where nothing shows."""
        return (self.since_micros or 0) // 1000

    @property
    def committed(self) -> int:
        """A position up to which all that was committed before has come; -1 where nothing shows one."""
        if self.commit_lsn is not None:
            return self.commit_lsn
        return -1 if self.first_order is None else commit_of(self.first_order)

    def shift_places(self, taken: int) -> None:
        """Count so many messages before the first of those that had arrived."""
        self.last_taken += taken
        self.bounded_at += taken if self.bounded_at else 0

    def take_place(self, arrival: Arrival, taken: int) -> None:
        """Take note of where a message of it lies, and of how many had arrived with it."""
        first_position = self.places.setdefault(arrival.origin, arrival.position)
        self.places[arrival.origin] = min(first_position, arrival.position)
        self.last_taken = taken
        self.last_micros = max(self.last_micros, arrival.micros)

    def take_order(self, ordering_key: str) -> None:
        """Take note of where one of its events stands."""
        self.has_metadata = self.has_metadata or has_total_order(ordering_key)
        # The place of the message, which comes last, is another one when it is sent again.
        place = ordering_key.rpartition(SEPARATOR)[0]
        self.first_order = place if self.first_order is None else min(self.first_order, place)
        self.last_order = max(self.last_order, place)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The boundaries that have come in one stream, in which each transaction ends before the next begins.

    ``reached`` is the highest position up to which all is known to have been committed by each of them, or by
    one that came later.
    """

    places: Sequence[int]
    reached: Sequence[int]

    @classmethod
    def of(cls, transactions: Collection[Transaction]) -> "Boundaries":
        """Return those of transactions."""
        bounded = sorted(
            (transaction.bounded_at, transaction.committed)
            for transaction in transactions
            if transaction.bounded_at
        )
        reached = accumulate((committed for _, committed in reversed(bounded)), max)
        return cls([place for place, _ in bounded], list(reached)[::-1])

    def show_end_of(self, transaction: Transaction) -> bool:
        """Return whether nothing more comes of a transaction, since a later one has come after it.

        One that was committed before it and is sent again shows nothing; nor does it matter where there is
        nothing to lose.
        """
        after = bisect_right(self.places, transaction.last_taken)
        if after == len(self.places):
            return False
        return transaction.first_order is None or self.reached[after] > commit_of(transaction.first_order)
