"""Collector of a read's events by transaction."""

from collections import defaultdict
from dataclasses import replace

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.sources.debezium.rows.checkpoints import Checkpoint
from cdc_platform.sources.debezium.rows.findings import gives_key_up
from cdc_platform.sources.debezium.rows.snapshots import is_buffered_snapshot
from cdc_platform.sources.debezium.transactions.transactions import Arrival, Transaction
from cdc_platform.sources.debezium.wire.message_contents import Signal, TransactionBegin, TransactionEnd

Event = SourceEvent | FaultyEvent


class Collector:
    """Collects the messages of a split by transaction.

    Attributes:
        names: names of all transactions.
        transactions: state of each transaction, by name; empty without transaction metadata.
        members: events of each transaction with their origins, in order of arrival.
        notes: logical messages of each transaction with their origins and positions; "" has all others.
        free: all other events, with their origins and positions.
        messages: number of messages that have arrived.
        newest_micros: time at which the newest message was sent.

    Args:
        is_one_stream: whether all messages arrive in the order in which the connector emitted them.
        has_transaction_metadata: whether the messages show which transactions are whole.
    """

    def __init__(self, *, is_one_stream: bool, has_transaction_metadata: bool) -> None:
        self.names: set[str] = set()
        self.transactions: dict[str, Transaction] = {}
        self.members: defaultdict[str, list[tuple[Event, str]]] = defaultdict(list)
        self.notes: defaultdict[str, list[tuple[SourceMessage, str, int]]] = defaultdict(list)
        self.free: list[tuple[Event, str, int]] = []
        self.messages = 0
        self.newest_micros = 0
        self._is_one_stream = is_one_stream
        self._has_transaction_metadata = has_transaction_metadata
        self._message_ids: defaultdict[str, set[str]] = defaultdict(set)
        self._current = ""
        self._newest: tuple[Event, str, int] | None = None

    @property
    def first_half(self) -> tuple[Event, str, int] | None:
        """The newest event, with origin and position, if it is the first half of a key change.

        In one stream the halves of a key change are consecutive.
        """
        is_half = self._is_one_stream and self._newest is not None and gives_key_up(self._newest[0])
        return self._newest if is_half else None

    def take(self, arrival: Arrival) -> None:
        """Add messages that have arrived."""
        event = arrival.event
        self.messages += 1
        self.newest_micros = max(self.newest_micros, arrival.micros)
        if isinstance(event, SourceEvent):
            self._take_event(event, arrival)
        elif isinstance(event, TransactionBegin | TransactionEnd):
            self._take_boundary(event, arrival)
        elif isinstance(event, Checkpoint):
            self._take_note(event, arrival)
        elif isinstance(event, Signal):
            self._take_signal(event, arrival)
        elif isinstance(event, FaultyEvent):
            self._take_event(event, arrival)

    def _take_boundary(self, boundary: TransactionBegin | TransactionEnd, arrival: Arrival) -> None:
        bounded = self._of(boundary.transaction_id)
        bounded.has_metadata = True
        bounded.take_place(arrival, self.messages)
        if not is_buffered_snapshot(boundary.transaction_id):
            bounded.bounded_at = self.messages
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
        self._count(note.transaction_id, arrival, note.ordering_key, note.event_id)
        self.notes[note.transaction_id].append((note, arrival.origin, arrival.position))

    def _take_event(self, event: Event, arrival: Arrival) -> None:
        if isinstance(event, SourceEvent):
            transaction, ordering_key, message_id = event.transaction_id, event.ordering_key, None
        else:
            before = self._newest[0] if self._is_one_stream and self._newest is not None else None
            if not event.ordering_key and gives_key_up(before):
                # The other half directly follows the first one, so an unreadable message is that half.
                event = replace(event, ordering_key=before.ordering_key)
            # In a single ordered stream, all messages between its boundaries belong to it.
            transaction = event.transaction_id or (self._current if self._is_one_stream else "")
            ordering_key, message_id = None, event.message_id
        self._newest = event, arrival.origin, arrival.position
        if not (transaction and self._has_transaction_metadata):
            if transaction:
                self.names.add(transaction)
            self.free.append((event, arrival.origin, arrival.position))
            return
        self._count(transaction, arrival, ordering_key, event.event_id or message_id)
        counted = self.transactions[transaction]
        counted.has_events = True
        counted.has_sound_events = counted.has_sound_events or isinstance(event, SourceEvent)
        self.members[transaction].append((event, arrival.origin))

    def _count(
        self, transaction: str, arrival: Arrival, ordering_key: str | None = None, event_id: str | None = None
    ) -> None:
        if not transaction:
            return
        counted = self._of(transaction)
        counted.take_place(arrival, self.messages)
        event = arrival.event
        if counted.since_micros is None and isinstance(event, SourceEvent):
            counted.since_micros = event.source_micros
        counted.has_metadata = (
            counted.has_metadata or ordering_key is None or is_buffered_snapshot(transaction)
        )
        message_ids = self._message_ids[transaction]
        message_ids.add(_message_of(event_id) or f"{arrival.origin}#{arrival.position}")
        counted.messages = len(message_ids)
        if ordering_key is not None:
            counted.take_order(ordering_key)

    def _of(self, transaction: str) -> Transaction:
        entry = self.transactions.get(transaction)
        if entry is None:
            entry = self.transactions[transaction] = Transaction()
            self.names.add(transaction)
        return entry


def _message_of(event_id: str | None) -> str | None:
    """Return the part of their identities that all events of one message share."""
    return event_id.removesuffix("+") if event_id is not None else None
