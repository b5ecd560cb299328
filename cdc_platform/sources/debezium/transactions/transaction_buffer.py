"""The transaction buffer: it lets whole transactions pass, and everything before the first that is not.

A connector emits transactions one after the other, in the order of their commits. So when one is not whole
yet, what was committed before it may pass, and the rest is read again by the next cycle.

Partitions of topics are read side by side, so that the end of a transaction may be read before its events
are: there it waits for these. It does so until it is plain that they will not come.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.events import FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.model.stream.file_reports import Waiting
from cdc_platform.sources.debezium.rows.decoder import Checkpoint
from cdc_platform.sources.debezium.rows.findings import gives_key_up
from cdc_platform.sources.debezium.rows.snapshots import is_buffered_snapshot
from cdc_platform.sources.debezium.transactions.arrivals import Arrival, Passed, PassedUntil
from cdc_platform.sources.debezium.transactions.transactions import Boundaries, Transaction
from cdc_platform.sources.debezium.wire.envelope import Signal, TransactionBegin, TransactionEnd
from cdc_platform.sources.event_batches import Released

_CLOCKS_DIFFER_MS: Final = 86_400_000
"""How far the clock of a source may be ahead of the platform's."""


class TransactionBuffer:
    """Collects what arrives in one cycle.

    Args:
        is_one_stream: whether everything comes in the order in which the connector emitted it, so that what
            a transaction lacks at its end will not come any more.
        passed_until: what `Passed.until` was last; a transaction that is not behind it has passed before,
            and was sent again, perhaps without its beginning.
        patience_micros: a transaction that is not whole is given up once something was sent so long after
            its last message; None means never.
        read_micros: when the cycle reads; None where that is not known.
    """

    def __init__(
        self,
        *,
        is_one_stream: bool,
        passed_until: PassedUntil | None = None,
        patience_micros: int | None = None,
        read_micros: int | None = None,
    ) -> None:
        self._is_one_stream = is_one_stream
        self._passed_until = passed_until or PassedUntil()
        self._patience_micros = patience_micros
        self._latest_ms = None if read_micros is None else read_micros // 1000 + _CLOCKS_DIFFER_MS
        self._newest_micros = 0
        self._transactions: dict[str, Transaction] = {}
        self._free: list[tuple[SourceEvent | FaultyEvent, str, int]] = []
        self._free_notes: list[tuple[SourceMessage, str, int]] = []
        self._current = ""
        self._taken = 0
        self._newest: tuple[SourceEvent | FaultyEvent, str, int] | None = None

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Take what has arrived."""
        for arrival in arrivals:
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:
        event = arrival.event
        self._taken += 1
        self._newest_micros = max(self._newest_micros, arrival.micros)
        if isinstance(event, TransactionBegin | TransactionEnd):
            self._take_boundary(event, arrival)
        elif isinstance(event, Checkpoint):
            self._take_note(event, arrival)
        elif isinstance(event, Signal):
            self._take_signal(event, arrival)
        elif isinstance(event, SourceEvent | FaultyEvent):
            self._take_event(event, arrival)

    def _take_boundary(self, boundary: TransactionBegin | TransactionEnd, arrival: Arrival) -> None:
        bounded = self._of(boundary.transaction_id)
        bounded.has_metadata = True
        bounded.take_place(arrival, self._taken)
        if not is_buffered_snapshot(boundary.transaction_id):
            bounded.bounded_at = self._taken
        if isinstance(boundary, TransactionBegin):
            self._current = boundary.transaction_id
            bounded.begun_at = bounded.begun_at or (arrival.origin, arrival.position)
            bounded.since_micros = boundary.micros
            return
        bounded.expected = boundary.event_count
        bounded.commit_lsn = boundary.lsn
        if self._current == boundary.transaction_id:
            self._current = ""

    def _take_signal(self, signal: Signal, arrival: Arrival) -> None:
        if signal.transaction_id:
            self._count(signal.transaction_id, arrival, signal.ordering_key, signal.event_id)
        elif self._is_one_stream:
            self._count(self._current, arrival)

    def _take_note(self, checkpoint: Checkpoint, arrival: Arrival) -> None:
        self._newest = None
        note = checkpoint.as_message()
        if not note.transaction_id:
            self._free_notes.append((note, arrival.origin, arrival.position))
            return
        self._count(note.transaction_id, arrival, note.ordering_key, note.event_id)
        self._of(note.transaction_id).notes.append((note, arrival.origin))

    def _take_event(self, event: SourceEvent | FaultyEvent, arrival: Arrival) -> None:
        before = self._newest[0] if self._is_one_stream and self._newest is not None else None
        if isinstance(event, FaultyEvent) and not event.ordering_key and gives_key_up(before):
            # Only the other half comes right behind the first one, so an unreadable message is that half.
            event = replace(event, ordering_key=before.ordering_key)
        self._newest = event, arrival.origin, arrival.position
        if isinstance(event, SourceEvent):
            transaction, ordering_key = event.transaction_id, event.ordering_key
        else:
            # What comes between its boundaries belongs to it, where everything comes in one order.
            transaction = event.transaction_id or (self._current if self._is_one_stream else "")
            ordering_key = None
        message_id = event.message_id if isinstance(event, FaultyEvent) else None
        if not transaction:
            self._free.append((event, arrival.origin, arrival.position))
            return
        self._count(transaction, arrival, ordering_key, event.event_id or message_id)
        self._of(transaction).members.append((event, arrival.origin))

    def _count(
        self, transaction: str, arrival: Arrival, ordering_key: str | None = None, event_id: str | None = None
    ) -> None:
        if not transaction:
            return
        counted = self._of(transaction)
        counted.take_place(arrival, self._taken)
        event = arrival.event
        if counted.since_micros is None and isinstance(event, SourceEvent):
            counted.since_micros = event.source_micros
        counted.has_metadata = (
            counted.has_metadata or ordering_key is None or is_buffered_snapshot(transaction)
        )
        counted.messages.add(_message_of(event_id) or f"{arrival.origin}#{arrival.position}")
        if ordering_key is not None:
            counted.take_order(ordering_key)

    def _of(self, transaction: str) -> Transaction:
        return self._transactions.setdefault(transaction, Transaction())

    def let_pass(self) -> Passed:
        """Return everything, each event by itself, because it is unknown which transactions are complete.

        In one stream the halves of a key change are consecutive; at its end the first one waits.
        """
        members = [member for transaction in self._transactions.values() for member in transaction.members]
        events = [*members, *((event, origin) for event, origin, _ in self._free)]
        resume: dict[str, int] = {}
        if self._is_one_stream and self._newest is not None and gives_key_up(self._newest[0]):
            newest, origin, position = self._newest
            events, resume = [member for member in events if member[0] is not newest], {origin: position}
        notes = [note for transaction in self._transactions.values() for note in transaction.notes]
        notes += [(note, origin) for note, origin, _ in self._free_notes]
        released = tuple((Released(event, "", 1), origin) for event, origin in events)
        return Passed(released, resume, self._passed_until, tuple(notes))

    def open_up(self) -> Passed:
        """Return what may pass, in no particular order, and from where on the rest is to be read again."""
        boundaries = Boundaries.of(self._transactions.values())
        waiting = {
            name: transaction
            for name, transaction in self._transactions.items()
            if self._waits(name, transaction, boundaries)
        }
        orders = [
            transaction.first_order for transaction in waiting.values() if transaction.first_order is not None
        ]
        limit = min(orders, default=None)
        begun = _earliest({origin: position} for origin, position in _beginnings(waiting.values()))
        passed: list[tuple[Released, str]] = []
        notes: list[tuple[SourceMessage, str]] = []
        places: list[Mapping[str, int]] = [transaction.places for transaction in waiting.values()]
        until = self._passed_until
        for event, origin, position in self._free:
            if _must_wait(event.ordering_key if isinstance(event, SourceEvent) else None, limit):
                places.append({origin: position})
            else:
                passed.append((Released(event, "", 1), origin))
        for note, origin, position in self._free_notes:
            if _must_wait(note.ordering_key, limit):
                places.append({origin: position})
            else:
                notes.append((note, origin))
        for name, transaction in self._transactions.items():
            if name in waiting:
                continue
            if _is_behind(transaction, limit, begun):
                places.append(transaction.places)
            else:
                fault = (
                    None
                    if transaction.is_whole or not transaction.has_metadata
                    else self._fault(name, transaction)
                )
                passed += _released(name, transaction, fault)
                notes += transaction.notes
                until = self._later(until, name, transaction)
        again = self._again_since_micros(waiting)
        return Passed(tuple(passed), _earliest(places), until, tuple(notes), _as_waiting(waiting), again)

    def _later(self, until: PassedUntil, name: str, transaction: Transaction) -> PassedUntil:
        """Return how far transactions have passed, one more included.

        A transaction whose events are all faulty, or that was committed after it was read, does not count:
        its place would make all later transactions look repeated.
        """
        committed_ms = 0 if is_buffered_snapshot(name) else transaction.committed_ms
        is_ahead = self._latest_ms is not None and committed_ms > self._latest_ms
        is_usable = any(isinstance(event, SourceEvent) for event, _ in transaction.members)
        if is_ahead or (transaction.members and not is_usable):
            return until
        return replace(
            until,
            ordering_key=max(until.ordering_key, transaction.last_order),
            commit_lsn=max(until.commit_lsn, transaction.commit_lsn or -1),
            committed_ms=max(until.committed_ms, committed_ms),
        )

    def _again_since_micros(self, waiting: Container[str]) -> int | None:
        """Return when the first was committed of the transactions that seem to have passed before."""
        repeated = (
            _moment(transaction.since_micros) or 0
            for name, transaction in self._transactions.items()
            if name not in waiting and self._is_repeated(name, transaction)
        )
        return min(repeated, default=None)

    def _waits(self, name: str, transaction: Transaction, boundaries: Boundaries) -> bool:
        """Return whether more of a transaction is to come."""
        if not transaction.has_metadata or self._is_given_up(transaction):
            return False
        if self._is_one_stream:
            has_ended = not is_buffered_snapshot(name) and boundaries.show_end_of(transaction)
            return transaction.expected is None and not has_ended
        return not self._is_repeated(name, transaction) and not transaction.is_whole

    def _is_repeated(self, name: str, transaction: Transaction) -> bool:
        """Return whether a transaction has passed before: it is not behind the last one, nor committed later.

        One that is committed later and stands before it is of a server whose positions have started over.
        """
        newest_ms = self._passed_until.committed_ms
        if newest_ms and not is_buffered_snapshot(name) and transaction.committed_ms > newest_ms:
            return False
        if transaction.commit_lsn is not None:
            return transaction.commit_lsn <= self._passed_until.commit_lsn
        return "" < transaction.last_order <= self._passed_until.ordering_key

    def _fault(self, name: str, transaction: Transaction) -> str | None:
        """Return why a transaction that is not whole must not enter the log; None where it has entered."""
        is_repeated = self._is_repeated(name, transaction)
        if is_repeated and is_buffered_snapshot(name):
            return None  # rows that lag behind its end
        announced = "an unknown number of" if transaction.expected is None else str(transaction.expected)
        if is_repeated and (transaction.begun_at is None or not self._is_one_stream):
            # What the log has of these is left out there; the rest came too late to be recognised, or lies
            # in quarantine with the transaction.
            return (
                f"It comes again with a part of its transaction {name}, which has passed before: "
                f"{len(transaction.messages)} of {announced} events have come"
            )
        lost = "; its END is missing" if transaction.expected is None else ""
        return (
            f"Its transaction {name} has {announced} events by the connector's word, of which "
            f"{len(transaction.messages)} have come{lost}"
        )

    def _is_given_up(self, transaction: Transaction) -> bool:
        if self._patience_micros is None:
            return False
        return self._newest_micros - transaction.last_micros > self._patience_micros


def _beginnings(waiting: Iterable[Transaction]) -> list[tuple[str, int]]:
    """Return where the transactions begin, as far as their BEGIN has arrived."""
    return [transaction.begun_at for transaction in waiting if transaction.begun_at is not None]


def _is_behind(transaction: Transaction, limit: str | None, begun: Mapping[str, int]) -> bool:
    """Return whether a transaction was committed after one that waits.

    One without a readable event, such as an empty one, has no ordering key; its BEGIN shows it.
    """
    if _must_wait(transaction.first_order, limit):
        return True
    origin, position = transaction.begun_at or ("", 0)
    return origin in begun and position > begun[origin]


def _must_wait(ordering_key: str | None, limit: str | None) -> bool:
    return ordering_key is not None and limit is not None and ordering_key >= limit


def _moment(micros: int | None) -> int | None:
    return micros if micros is not None and is_moment(micros) else None


def _as_waiting(waiting: Mapping[str, Transaction]) -> tuple[Waiting, ...]:
    return tuple(
        Waiting(name, _moment(transaction.since_micros), len(transaction.messages), transaction.expected)
        for name, transaction in waiting.items()
    )


def _message_of(event_id: str | None) -> str | None:
    """Return what the events of one message share of their identities."""
    return event_id.removesuffix("+") if event_id is not None else None


def _released(name: str, transaction: Transaction, fault: str | None) -> list[tuple[Released, str]]:
    distinct = {event.event_id: (event, origin) for event, origin in transaction.members if event.event_id}
    nameless = [(event, origin) for event, origin in transaction.members if not event.event_id]
    members = [*distinct.values(), *nameless]
    if not transaction.has_metadata:
        return [(Released(event, "", 1), origin) for event, origin in members]
    return [(Released(event, name, len(members), fault), origin) for event, origin in members]


def _earliest(all_places: Iterable[Mapping[str, int]]) -> dict[str, int]:
    resume: dict[str, int] = {}
    for places in all_places:
        for origin, position in places.items():
            resume[origin] = min(position, resume.get(origin, position))
    return resume
